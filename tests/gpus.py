"""GPUs that do not exist, as HTCondor's own discovery simulates them, and what it prints of them."""

import re
from pathlib import Path
from typing import Final

import pytest

from k8spilot.gpu.discovery.evidence import Device
from lab.api import Lab

OPTIONS: Final = ("-nested", "-properties", "-extra")
GOLDEN: Final = {
    found[1]: found[2]
    for found in re.finditer(
        r"^== (\S+)\n(.*?)(?=^==|\Z)",
        (Path(__file__).parent / "condor_gpu_discovery.txt").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
"""Output of condor_gpu_discovery with these options, by the argument of -simulate."""

_REST: Final = "-4445-5667-899a-abbccddeeff0"
_KINDS: Final = {  # simulated_device_enumeration.cpp: name, MiB, capability, ECC, MHz, multiprocessors
    "0": ("GeForce GT 330", 1024, "1.2", False, 1340, 12),
    "2": ("Tesla V100-PCIE-16GB", 24220, "7.0", True, 1380, 80),
    "4": ("A100-SXM4-40GB", 47661, "8.0", True, 1410, 42),
}


def simulated(simulation: str) -> list[Device]:
    """The devices of a simulation."""
    kind, _, number = simulation.partition(",")
    if kind == "6":  # parts of one
        return [
            Device(
                f"MIG-a022330{part}{_REST}",
                pci="0000:40:00.0",
                memory_mb=4861,
                capability="8.0",
                ecc=True,
                clock_mhz=1410,
            )
            for part in range(7)
        ]
    name, memory, capability, ecc, clock, units = _KINDS[kind]
    return [
        Device(
            f"GPU-{'abcd'[at]}{at}223334{_REST}",
            name,
            at,
            at,
            f"0000:4{at}:00.0",
            memory,
            capability,
            ecc,
            clock,
            units=units,
        )
        for at in range(int(number))
    ]


def skip_without_start(lab: Lab, resource: str) -> None:
    """Skip a test if pods with this resource do not start with the components of the lab's pilots."""
    if resource == "nvidia.com/gpu-mounts" and "user-namespace" in lab.settings.components:
        pytest.skip("runc cannot give /dev/null, which this resource mounts, to a pod with a user namespace")
