"""HTCondor's names of devices, as condor_gpu_discovery makes them."""

from collections.abc import Sequence
from typing import Final

from k8spilot.gpu.discovery.evidence import Device

_SHORT: Final = 8


def short(uuid: str) -> str:
    """Return HTCondor's name of a device: GPU- and eight digits; for a MIG device the whole id, which CUDA requires."""
    return uuid if uuid.startswith("MIG-") else uuid[: len("GPU-") + _SHORT]


def names(devices: Sequence[Device]) -> list[str]:
    """Return HTCondor's names of all devices; all are different."""
    short_names = [short(device.uuid) for device in devices]
    return short_names if len(set(short_names)) == len(short_names) else [device.uuid for device in devices]
