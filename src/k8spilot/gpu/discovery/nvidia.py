"""NVIDIA's GPUs, listed by its driver: through NVML, or from its files in /proc where there is no NVML."""

import ctypes
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from k8spilot.gpu.discovery.evidence import Device, Driver

FILES: Final = Path("/proc/driver/nvidia")
_LIBRARY: Final = "libnvidia-ml.so.1"
_TRIES: Final = 3
_RETRY_SECONDS: Final = 0.3
_MIB: Final = 1024 * 1024


def driver() -> Driver:
    """Query the driver. The result has the reason if the query fails."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        # The usual case without a GPU: pynvml is not loaded.
        return Driver(error=f"{_LIBRARY} is missing")
    import pynvml  # noqa: PLC0415 -- most pods have no GPU

    for left in reversed(range(_TRIES)):
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            # NVIDIA's legacy runtime removes a container's right to its devices for a moment.
            if left:
                time.sleep(_RETRY_SECONDS)
                continue
            return Driver(error=f"NVML does not start: {error}")
        break
    try:
        return Driver(
            version=_text(_query(pynvml.nvmlSystemGetDriverVersion)),
            cuda=_query(pynvml.nvmlSystemGetCudaDriverVersion),
            devices=tuple(_devices(pynvml)),
        )
    except pynvml.NVMLError as error:
        return Driver(error=f"NVML does not list its devices: {error}")
    finally:
        _query(pynvml.nvmlShutdown)


def _devices(nvml: Any) -> Iterator[Device]:
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError_NoPermission:
            continue  # it belongs to another container
        whole = _device(nvml, handle, index)
        yield whole
        if whole.divided:
            yield from _parts(nvml, handle, whole)


def _device(nvml: Any, handle: Any, index: int) -> Device:
    memory, pci = _query(nvml.nvmlDeviceGetMemoryInfo, handle), _query(nvml.nvmlDeviceGetPciInfo, handle)
    capability, mode = (
        _query(nvml.nvmlDeviceGetCudaComputeCapability, handle),
        _query(nvml.nvmlDeviceGetMigMode, handle),
    )
    ecc = _query(nvml.nvmlDeviceGetEccMode, handle)
    return Device(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(_query(nvml.nvmlDeviceGetName, handle)),
        index=index,
        minor=_query(nvml.nvmlDeviceGetMinorNumber, handle),
        pci=_text(pci.busIdLegacy) if pci is not None else "",
        memory_mb=memory.total // _MIB if memory is not None else None,
        capability=f"{capability[0]}.{capability[1]}" if capability is not None else "",
        ecc=bool(ecc[0]) if ecc is not None else None,
        clock_mhz=_query(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        cores=_query(nvml.nvmlDeviceGetNumGpuCores, handle),
        divided=mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    )


def _parts(nvml: Any, handle: Any, whole: Device) -> Iterator[Device]:
    """Yield the MIG devices of a GPU that the container sees.

    Values that they do not report come from the whole GPU.
    """
    for number in range(_query(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _query(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if part is None:
            continue  # the number is free, or another container has the device
        memory, attributes = _query(nvml.nvmlDeviceGetMemoryInfo, part), _query(nvml.nvmlDeviceGetAttributes_v2, part)
        instance = (_query(nvml.nvmlDeviceGetGpuInstanceId, part), _query(nvml.nvmlDeviceGetComputeInstanceId, part))
        yield Device(
            uuid=_text(nvml.nvmlDeviceGetUUID(part)),
            name=_text(_query(nvml.nvmlDeviceGetName, part)) or whole.name,
            index=whole.index,
            pci=whole.pci,
            memory_mb=memory.total // _MIB if memory is not None else None,
            capability=whole.capability,
            ecc=whole.ecc,
            clock_mhz=whole.clock_mhz,
            units=attributes.multiprocessorCount if attributes is not None else None,
            parent=whole.uuid,
            instance=None if None in instance else instance,  # type: ignore[arg-type]
        )


def _query[T](call: Callable[..., T], *arguments: Any) -> T | None:
    """Return NVML's answer; None where the device or the driver has none."""
    import pynvml  # noqa: PLC0415

    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def files(folder: Path = FILES) -> Iterator[Device]:
    """Yield GPUs of the node from the driver's files, which lack memory and capability."""
    for path in sorted(folder.glob("gpus/*/information")):
        try:
            values = dict(re.findall(r"^([^:\n]+):\s*(.*?)\s*$", path.read_text(), re.MULTILINE))
        except OSError:
            continue
        if not (uuid := values.get("GPU UUID", "")).startswith("GPU-") or "?" in uuid:
            continue  # the driver has not initialized the GPU
        minor = values.get("Device Minor", "")
        yield Device(
            uuid=uuid,
            name=values.get("Model", ""),
            minor=int(minor) if minor.isdecimal() else None,
            pci=values.get("Bus Location", path.parent.name),
        )


def version(folder: Path = FILES) -> str:
    """Return the driver's version from its own file; empty without a driver."""
    try:
        match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)(?:\s|$)", (folder / "version").read_text())
    except OSError:
        return ""
    return match[1] if match else ""
