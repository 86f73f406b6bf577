"""NVIDIA's GPUs, listed by its driver: through NVML, and from its files in /proc where there is no NVML."""

import ctypes
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from k8spilot.gpu.discovery.evidence import Device, Driver

T = TypeVar("T")

FILES: Final = Path("/proc/driver/nvidia")
_LIBRARY: Final = "libnvidia-ml.so.1"
_TRIES: Final = 3
_AGAIN_SECONDS: Final = 0.3
_MIB: Final = 1024 * 1024


def driver() -> Driver:
    """Ask the driver; where it cannot be asked, the answer says why."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        # What is there without a GPU, and a library less to load.
        return Driver(error=f"{_LIBRARY} is not there")
    import pynvml  # noqa: PLC0415 -- most pods have no GPU

    for left in reversed(range(_TRIES)):
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            # A node's runtime that takes a container's right to its devices away for a moment: NVIDIA's first one does.
            if left:
                time.sleep(_AGAIN_SECONDS)
                continue
            return Driver(error=f"NVML does not start: {error}")
        break
    try:
        return Driver(
            version=_text(_told(pynvml.nvmlSystemGetDriverVersion)),
            cuda=_told(pynvml.nvmlSystemGetCudaDriverVersion),
            devices=tuple(_devices(pynvml)),
        )
    except pynvml.NVMLError as error:
        return Driver(error=f"NVML does not list its devices: {error}")
    finally:
        _told(pynvml.nvmlShutdown)


def _devices(nvml: Any) -> Iterator[Device]:
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError_NoPermission:
            continue  # another container's
        whole = _device(nvml, handle, index)
        yield whole
        if whole.divided:
            yield from _parts(nvml, handle, whole)


def _device(nvml: Any, handle: Any, index: int) -> Device:
    memory, pci = _told(nvml.nvmlDeviceGetMemoryInfo, handle), _told(nvml.nvmlDeviceGetPciInfo, handle)
    capability, mode = _told(nvml.nvmlDeviceGetCudaComputeCapability, handle), _told(nvml.nvmlDeviceGetMigMode, handle)
    ecc = _told(nvml.nvmlDeviceGetEccMode, handle)
    return Device(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(_told(nvml.nvmlDeviceGetName, handle)),
        index=index,
        minor=_told(nvml.nvmlDeviceGetMinorNumber, handle),
        pci=_text(pci.busIdLegacy) if pci is not None else "",
        memory_mb=memory.total // _MIB if memory is not None else None,
        capability=f"{capability[0]}.{capability[1]}" if capability is not None else "",
        ecc=bool(ecc[0]) if ecc is not None else None,
        clock_mhz=_told(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        cores=_told(nvml.nvmlDeviceGetNumGpuCores, handle),
        divided=mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    )


def _parts(nvml: Any, handle: Any, whole: Device) -> Iterator[Device]:
    """The MIG devices of a GPU that the container sees. What they do not tell themselves is as of the whole."""
    for number in range(_told(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _told(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if part is None:
            continue  # none has this number, or another container has it
        memory, attributes = _told(nvml.nvmlDeviceGetMemoryInfo, part), _told(nvml.nvmlDeviceGetAttributes_v2, part)
        instance = (_told(nvml.nvmlDeviceGetGpuInstanceId, part), _told(nvml.nvmlDeviceGetComputeInstanceId, part))
        yield Device(
            uuid=_text(nvml.nvmlDeviceGetUUID(part)),
            name=_text(_told(nvml.nvmlDeviceGetName, part)) or whole.name,
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


def _told(ask: Callable[..., T], *arguments: Any) -> T | None:
    """What NVML answers; None where this device or this driver has no answer."""
    import pynvml  # noqa: PLC0415

    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def files(folder: Path = FILES) -> Iterator[Device]:
    """GPUs of the node from the driver's own files; memory and capability are not among what they tell."""
    for path in sorted(folder.glob("gpus/*/information")):
        try:
            told = dict(re.findall(r"^([^:\n]+):\s*(.*?)\s*$", path.read_text(), re.MULTILINE))
        except OSError:
            continue
        if not (uuid := told.get("GPU UUID", "")).startswith("GPU-") or "?" in uuid:
            continue  # a GPU that the driver has not begun with
        minor = told.get("Device Minor", "")
        yield Device(
            uuid=uuid,
            name=told.get("Model", ""),
            minor=int(minor) if minor.isdecimal() else None,
            pci=told.get("Bus Location", path.parent.name),
        )


def version(folder: Path = FILES) -> str:
    """The driver's version from its own file; nothing where there is no driver."""
    try:
        found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)(?:\s|$)", (folder / "version").read_text())
    except OSError:
        return ""
    return found[1] if found else ""
