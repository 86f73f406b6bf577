"""What NVML says of how busy its devices are, and of their memory.

Stands on pynvml and the standard library alone, since it is loaded by the sampler (sampler.py). NVML's own description
of each call is in nvml.h. What a driver or a device cannot tell is None here, and never 0.
"""

import logging
import re
import time
from contextlib import suppress
from typing import Any, Final

import pynvml

from k8spilot.gpu.monitoring.nvidia_gpm import Gpm
from k8spilot.gpu.monitoring.vendor import GpuProcess, Reading, ReadingFault

logger = logging.getLogger("k8spilot.gpu.monitoring.sampler")  # whose program this is a part of

_MICROSECONDS: Final = 1e6
_GAP_SECONDS: Final = 2.0
"""Samples come every 20 to 1000 ms. Where none came for longer, some are missing, and what they said is not known."""
_CANNOT: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
"""The device or the driver never says this."""
_MAY_NOT: Final = _CANNOT | {pynvml.NVML_ERROR_NO_PERMISSION}
_ALL_FAILS: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
    }
)
"""Not of one figure: the device or the driver is gone."""
_TELLS_PROCESSES: Final = (535, 113)
"""The first driver that gives process ids of the caller's PID namespace. Before it the list has the node's, or none."""
_NOTHING_NEW: Final = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS})
"""pynvml raises the latter where there is nothing to return (nvmlDeviceGetProcessUtilization)."""
_NO_MIG: Final = frozenset({*_CANNOT, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})


class Nvidia:
    """The devices that NVML shows to this process."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._up = False

    def open(self) -> None:
        """Find the devices; again, after a fault: their samples go on where they were.

        Raises:
            Fault: there is no NVML, or it has no driver.
        """
        self.close()
        before = self._devices
        try:
            pynvml.nvmlInit()
            self._up = True
            self._devices = {one.uuid: one for one in _devices(tells_processes(self.driver()))}
        except pynvml.NVMLError as error:
            raise _fault(error) from error
        for uuid, device in self._devices.items():
            if uuid in before:
                device.seen = before[uuid].seen

    def close(self) -> None:
        """Let go of the driver: one that is held cannot be unloaded."""
        if self._up:
            self._up = False
            for device in self._devices.values():
                device.close()
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    @property
    def uuids(self) -> list[str]:
        """The devices' names, with their prefixes: GPU-... and MIG-..."""
        return list(self._devices)

    def driver(self) -> str | None:
        """The driver's version, if it tells."""
        with suppress(pynvml.NVMLError):
            return str(pynvml.nvmlSystemGetDriverVersion())
        return None

    def read(self, processes: bool) -> dict[str, Reading]:
        """Read every device.

        Args:
            processes: whose device it is, too: that takes longer.
        """
        return {uuid: device.read(processes) for uuid, device in self._devices.items()}


class _Device:
    """One GPU, or one MIG device."""

    def __init__(self, handle: Any, uuid: str, *, lists_processes: bool, is_mig: bool = False) -> None:
        self.uuid = uuid
        self.seen = 0
        """Time stamp of the last sample of its utilisation (microseconds), 0 before the first."""
        self._handle = handle
        self._ways = [self._monitored] if is_mig else [self._samples, self._rate]
        """How its utilisation can be had, the best first; those that it does not have are taken out."""
        self._rated: float | None = None
        self._gpm: Gpm | None = None
        self._memory_kinds: list[int | None] = [pynvml.nvmlMemory_v2, None]
        self._lists_processes = lists_processes
        self._rates_processes = not is_mig
        self._processes_seen = 0
        self._trouble = ""
        """Why the utilisation was not to be had last."""

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
                if error.value not in _CANNOT:
                    raise
                del self._memory_kinds[0]
        if self._trouble and reading.memory is None:  # then nothing is known of it
            reading.fault = self._trouble
        if processes and self._lists_processes:
            reading.processes = self._processes()

    def _read_utilisation(self, reading: Reading) -> None:
        """Nothing else is lost where only this fails."""
        while self._ways:
            try:
                reading.busy, reading.known = self._ways[0]()
            except pynvml.NVMLError as error:
                if error.value in _ALL_FAILS:
                    raise
                if error.value in _MAY_NOT:
                    del self._ways[0]
                    continue
                self._rated = None
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    logger.warning("The utilisation of %s cannot be read now: %s.", self.uuid, error)
                return
            break
        self._trouble = ""

    def _samples(self) -> tuple[float, float]:
        """Seconds busy, of so many that are known of: from the driver's own samples, which leave no time out."""
        try:
            _, samples = pynvml.nvmlDeviceGetSamples(self._handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self.seen)
        except pynvml.NVMLError as error:
            if error.value in _NOTHING_NEW:
                return 0.0, 0.0
            raise
        if not self.seen:  # the first ones are of before we came, and of the spike that NVML's own start makes
            self.seen = max((one.timeStamp for one in samples), default=0)
            return 0.0, 0.0
        busy = known = 0.0
        for one in samples:
            seconds = (one.timeStamp - self.seen) / _MICROSECONDS
            if 0 < seconds <= _GAP_SECONDS:
                known += seconds
                busy += seconds * min(one.sampleValue.uiVal, 100) / 100
            self.seen = max(self.seen, one.timeStamp)
        return busy, known

    def _rate(self) -> tuple[float, float]:
        """As above, from what the driver says of the last moment."""
        now, before = time.monotonic(), self._rated
        percent = pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
        self._rated = now
        if before is None or now - before > _GAP_SECONDS * 5:
            return 0.0, 0.0
        return (now - before) * min(percent, 100) / 100, now - before

    def _monitored(self) -> tuple[float, float]:
        """As above, of a MIG device."""
        if self._gpm is None:
            self._gpm = Gpm(self._handle)
        return self._gpm.read()

    def close(self) -> None:
        """Give back what it has of the driver."""
        if self._gpm is not None:
            with suppress(pynvml.NVMLError):
                self._gpm.close()
            self._gpm = None

    def _processes(self) -> list[GpuProcess] | None:
        """Who has a context there; process ids are those of our PID namespace."""
        try:
            found = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except pynvml.NVMLError as error:
            if error.value not in _MAY_NOT:
                raise
            self._lists_processes = False
            return None
        shares = self._shares() if self._rates_processes else {}
        return [
            GpuProcess(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory), shares.get(one.pid))
            for one in found
        ]

    def _shares(self) -> dict[int, float]:
        """How busy each process kept the device since this was asked last, 0 to 1."""
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handle, self._processes_seen)
        except pynvml.NVMLError as error:
            if error.value not in _MAY_NOT | _NOTHING_NEW:
                raise
            self._rates_processes = error.value in _NOTHING_NEW
            return {}
        found: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > self._processes_seen:
                found.setdefault(int(sample.pid), []).append(min(sample.smUtil, 100))
        self._processes_seen = max((one.timeStamp for one in samples), default=self._processes_seen)
        return {pid: sum(values) / len(values) / 100 for pid, values in found.items()}


def tells_processes(driver: str | None) -> bool:
    """Whether a driver of this version says which of our own processes use a device."""
    version = re.match(r"(\d+)\.(\d+)", driver or "")
    return version is not None and (int(version[1]), int(version[2])) >= _TELLS_PROCESSES


def _devices(lists_processes: bool) -> list[_Device]:
    """All devices that can be measured. One that is lost is left out, and so is a GPU that has become MIG devices."""
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(_Device(handle, str(pynvml.nvmlDeviceGetUUID(handle)), lists_processes=lists_processes))
            found.extend(_mig_devices(handle, lists_processes))
    return found


def _mig_devices(parent: Any, lists_processes: bool) -> list[_Device]:
    try:
        if pynvml.nvmlDeviceGetMigMode(parent)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(parent)
    except pynvml.NVMLError as error:
        if error.value in _NO_MIG:
            return []
        raise
    found = []
    for index in range(most):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            found.append(_Device(handle, uuid, lists_processes=lists_processes, is_mig=True))
    return found


def _fault(error: Any) -> ReadingFault:
    return ReadingFault(str(error), is_absent=error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
