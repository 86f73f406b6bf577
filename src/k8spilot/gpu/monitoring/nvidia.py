"""Utilization and memory of NVIDIA's devices, read through NVML.

The sampler (sampler.py) loads this module, which therefore uses only pynvml and the standard library. nvml.h describes
each call. A value that a driver or device cannot report is None, never 0.
"""

import logging
import re
import time
from contextlib import suppress
from typing import Any, Final

import pynvml

from k8spilot.gpu.monitoring.nvidia_gpm import Gpm
from k8spilot.gpu.monitoring.vendor_interface import GpuProcess, Reading, ReadingFault

logger = logging.getLogger("k8spilot.gpu.monitoring.sampler")  # the program that loads this module

_MICROSECONDS: Final = 1e6
_GAP_SECONDS: Final = 2.0
"""Samples come every 20 to 1000 ms. In a longer gap samples are missing, and the utilization is unknown."""
_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
"""Errors of a value that the device or the driver never reports."""
_UNSUPPORTED_OR_FORBIDDEN: Final = _UNSUPPORTED | {pynvml.NVML_ERROR_NO_PERMISSION}
_FATAL: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
    }
)
"""Errors of the device or the driver, not of one value."""
_FIRST_WITH_PROCESSES: Final = (535, 113)
"""First driver version that lists process ids of the caller's PID namespace. Older drivers list the node's, or none."""
_NO_NEW_SAMPLES: Final = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS})
"""pynvml raises NVML_SUCCESS where there is nothing to return (nvmlDeviceGetProcessUtilization)."""
_NO_MIG: Final = frozenset({*_UNSUPPORTED, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})


class Nvidia:
    """Devices that NVML shows to this process."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._up = False

    def open(self) -> None:
        """Find the devices, also again after a fault. Their samples continue.

        Raises:
            ReadingFault: there is no NVML, or NVML has no driver.
        """
        self.close()
        before = self._devices
        try:
            pynvml.nvmlInit()
            self._up = True
            self._devices = {device.uuid: device for device in _devices(tells_processes(self.driver()))}
        except pynvml.NVMLError as error:
            raise _fault(error) from error
        for uuid, device in self._devices.items():
            if uuid in before:
                device.seen = before[uuid].seen

    def close(self) -> None:
        """Release the driver: a driver in use cannot be unloaded."""
        if self._up:
            self._up = False
            for device in self._devices.values():
                device.close()
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    @property
    def uuids(self) -> list[str]:
        """UUIDs of the devices, with their prefixes: GPU-... and MIG-..."""
        return list(self._devices)

    def driver(self) -> str | None:
        """Return the driver's version, or None if it is unknown."""
        with suppress(pynvml.NVMLError):
            return str(pynvml.nvmlSystemGetDriverVersion())
        return None

    def read(self, processes: bool) -> dict[str, Reading]:
        """Read every device.

        Args:
            processes: also read the processes that use it, which takes longer.
        """
        return {uuid: device.read(processes) for uuid, device in self._devices.items()}


class _Device:
    """A GPU, or a MIG device."""

    def __init__(self, handle: Any, uuid: str, *, lists_processes: bool, is_mig: bool = False) -> None:
        self.uuid = uuid
        self.seen = 0
        """Time stamp of the latest utilization sample, in microseconds; 0 before the first."""
        self._handle = handle
        self._ways = [self._monitored] if is_mig else [self._samples, self._rate]
        """Methods to read the utilization, the best first. Unsupported methods are removed."""
        self._rated: float | None = None
        self._gpm: Gpm | None = None
        self._memory_kinds: list[int | None] = [pynvml.nvmlMemory_v2, None]
        self._lists_processes = lists_processes
        self._rates_processes = not is_mig
        self._processes_seen = 0
        self._trouble = ""
        """Reason of the latest failure to read the utilization."""

    def read(self, processes: bool) -> Reading:
        reading = Reading()
        try:
            self._read(reading, processes)
        except pynvml.NVMLError as error:
            self._rated = None
            return Reading(fault=str(error))
        return reading

    def _read(self, reading: Reading, processes: bool) -> None:
        self._read_utilisation(reading)
        while self._memory_kinds:
            try:
                memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle, version=self._memory_kinds[0])
                reading.memory, reading.total = int(memory.used), int(memory.total)
                break
            except pynvml.NVMLError as error:
                if error.value not in _UNSUPPORTED:
                    raise
                del self._memory_kinds[0]
        if self._trouble and reading.memory is None:  # then nothing of the device is known
            reading.fault = self._trouble
        if processes and self._lists_processes:
            reading.processes = self._processes()

    def _read_utilisation(self, reading: Reading) -> None:
        """Read the utilization. A failure here does not affect the other values."""
        while self._ways:
            try:
                reading.busy, reading.known = self._ways[0]()
            except pynvml.NVMLError as error:
                if error.value in _FATAL:
                    raise
                if error.value in _UNSUPPORTED_OR_FORBIDDEN:
                    del self._ways[0]
                    continue
                self._rated = None
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    logger.warning("The utilization of %s cannot be read at the moment: %s.", self.uuid, error)
                return
            break
        self._trouble = ""

    def _samples(self) -> tuple[float, float]:
        """Return the busy and the known seconds, from the driver's own samples, which leave no gaps."""
        try:
            _, samples = pynvml.nvmlDeviceGetSamples(self._handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self.seen)
        except pynvml.NVMLError as error:
            if error.value in _NO_NEW_SAMPLES:
                return 0.0, 0.0
            raise
        if not self.seen:  # the first samples are from before the start, or from the spike of NVML's own start
            self.seen = max((sample.timeStamp for sample in samples), default=0)
            return 0.0, 0.0
        busy = known = 0.0
        for sample in samples:
            seconds = (sample.timeStamp - self.seen) / _MICROSECONDS
            if 0 < seconds <= _GAP_SECONDS:
                known += seconds
                busy += seconds * min(sample.sampleValue.uiVal, 100) / 100
            self.seen = max(self.seen, sample.timeStamp)
        return busy, known

    def _rate(self) -> tuple[float, float]:
        """Return the same as `_samples`, from the driver's current utilization."""
        now, before = time.monotonic(), self._rated
        percent = pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
        self._rated = now
        if before is None or now - before > _GAP_SECONDS * 5:
            return 0.0, 0.0
        return (now - before) * min(percent, 100) / 100, now - before

    def _monitored(self) -> tuple[float, float]:
        """Return the same as `_samples`, for a MIG device."""
        if self._gpm is None:
            self._gpm = Gpm(self._handle)
        return self._gpm.read()

    def close(self) -> None:
        """Release the resources of the driver."""
        if self._gpm is not None:
            with suppress(pynvml.NVMLError):
                self._gpm.close()
            self._gpm = None

    def _processes(self) -> list[GpuProcess] | None:
        """Return the processes with a context on the device; process ids are those of this PID namespace."""
        try:
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except pynvml.NVMLError as error:
            if error.value not in _UNSUPPORTED_OR_FORBIDDEN:
                raise
            self._lists_processes = False
            return None
        shares = self._shares() if self._rates_processes else {}
        return [
            GpuProcess(
                int(process.pid),
                None if process.usedGpuMemory is None else int(process.usedGpuMemory),
                shares.get(process.pid),
            )
            for process in processes
        ]

    def _shares(self) -> dict[int, float]:
        """Return each process's utilization of the device since the last call, 0 to 1."""
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handle, self._processes_seen)
        except pynvml.NVMLError as error:
            if error.value not in _UNSUPPORTED_OR_FORBIDDEN | _NO_NEW_SAMPLES:
                raise
            self._rates_processes = error.value in _NO_NEW_SAMPLES
            return {}
        utilizations: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > self._processes_seen:
                utilizations.setdefault(int(sample.pid), []).append(min(sample.smUtil, 100))
        self._processes_seen = max((sample.timeStamp for sample in samples), default=self._processes_seen)
        return {pid: sum(values) / len(values) / 100 for pid, values in utilizations.items()}


def tells_processes(driver: str | None) -> bool:
    """Return whether a driver of this version lists the processes of this PID namespace."""
    version = re.match(r"(\d+)\.(\d+)", driver or "")
    return version is not None and (int(version[1]), int(version[2])) >= _FIRST_WITH_PROCESSES


def _devices(lists_processes: bool) -> list[_Device]:
    """Return all devices that can be measured, without lost ones and without GPUs that are divided into MIG devices."""
    devices = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            devices.append(_Device(handle, str(pynvml.nvmlDeviceGetUUID(handle)), lists_processes=lists_processes))
            devices.extend(_mig_devices(handle, lists_processes))
    return devices


def _mig_devices(parent: Any, lists_processes: bool) -> list[_Device]:
    try:
        if pynvml.nvmlDeviceGetMigMode(parent)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(parent)
    except pynvml.NVMLError as error:
        if error.value in _NO_MIG:
            return []
        raise
    devices = []
    for index in range(most):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            devices.append(_Device(handle, uuid, lists_processes=lists_processes, is_mig=True))
    return devices


def _fault(error: Any) -> ReadingFault:
    return ReadingFault(str(error), is_absent=error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
