"""Devices in HTCondor's format: the output that `condor_gpu_discovery -properties -extra` would have.

HTCondor's own program needs CUDA and the devices, and the pilot's container has neither.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from k8spilot.gpu.discovery.evidence import Device, Driver
from k8spilot.gpu.discovery.names import names

NONE: Final = "DetectedGPUs=0\n"

_CORES: Final = {
    "1": 8, "2.0": 32, "2.1": 48, "3": 192, "5": 128, "6.0": 64, "6": 128, "7": 64, "8.0": 64,
}  # fmt: skip
"""CUDA cores of a multiprocessor by compute capability, or by its first part; 128 since (NVIDIA's helper_cuda.h)."""


def mark(container: int) -> str:
    """Return the attribute of the devices of a payload container, by its number: a slot type selects them by it."""
    return f"K8SPayload{container}"


def inventory(devices: Sequence[Device], driver: Driver, containers: Mapping[str, Sequence[int]] | None = None) -> str:
    """Return the output of MACHINE_RESOURCE_INVENTORY_GPUs: the names, and properties in nested ClassAds.

    Args:
        devices: the devices, each once.
        driver: the driver.
        containers: by the devices' uuids, the numbers of the payload containers that have them; None if the pod has
            one payload container. HTCondor can assign a device as often as it has a name in the list.
    """
    if not devices:
        return NONE
    properties = dict(
        zip(names(devices), (dict(sorted(_properties(device, driver))) for device in devices), strict=True)
    )
    first = next(iter(properties.values()))
    common = {
        key: value for key, value in first.items() if all(other.get(key) == value for other in properties.values())
    }
    marks = {
        name: [mark(number) for number in (containers or {}).get(device.uuid, ())]
        for name, device in zip(properties, devices, strict=True)
    }
    listed = [name for name in properties for _ in marks[name] or [""]]
    lines = [f'DetectedGPUs="{", ".join(listed)}"']
    if common:
        lines.append(f"Common=[ {_text(common)}]")
    for name, values in sorted(properties.items()):
        own = {key: value for key, value in values.items() if key not in common}
        own |= dict.fromkeys(marks[name], "true")
        lines.append(f'{re.sub("[-/]", "_", name)}=[ id="{name}"; {_text(own)}]')
    return "\n".join(lines) + "\n"


def _text(properties: dict[str, str]) -> str:
    return "".join(f"{key}={value}; " for key, value in properties.items())


def _properties(device: Device, driver: Driver) -> Iterator[tuple[str, str]]:
    """Yield attributes and ClassAd expressions; unknown ones are omitted."""
    yield "DeviceUuid", _quoted(device.uuid.removeprefix("GPU-"))
    if device.name:
        yield "DeviceName", _quoted(device.name)
    if device.pci:
        yield "DevicePciBusId", _quoted(device.pci)
    if device.ecc is not None:
        yield "ECCEnabled", "true" if device.ecc else "false"
    if device.memory_mb is not None:
        yield "GlobalMemoryMb", str(device.memory_mb)
    if driver.version:
        yield "NvidiaDriver", _quoted(driver.version)
    if driver.cuda is not None:
        # 12040 (CUDA 12.4) gives 12.40, as in HTCondor; it is the same number.
        yield "DriverVersion", f"{driver.cuda // 1000}.{driver.cuda % 100}"
        yield "MaxSupportedVersion", str(driver.cuda)
    if device.clock_mhz is not None:
        yield "ClockMhz", f"{device.clock_mhz}.00"
    if device.capability:
        cores = _CORES.get(device.capability, _CORES.get(device.capability.partition(".")[0], 128))
        yield "Capability", device.capability
        yield "CoresPerCU", str(cores)
        if units := device.units or (device.cores or 0) // cores:
            yield "ComputeUnits", str(units)


def _quoted(text: str) -> str:
    """Return a ClassAd string, without characters of the driver's text that could end it."""
    return '"' + re.sub(r'[\\"\x00-\x1f\x7f]', "_", text) + '"'
