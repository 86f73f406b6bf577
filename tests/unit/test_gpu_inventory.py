"""HTCondor's words for GPUs: as its own program prints them. tests/e2e/test_gpus.py asks that program."""

from dataclasses import replace

import pytest

from k8spilot.gpu.discovery.evidence import Device, Driver
from k8spilot.gpu.discovery.names import names, short
from k8spilot.gpu.htcondor.inventory import inventory
from tests.gpus import GOLDEN, simulated

H200 = Device(
    "GPU-8f9c2d75-1111-2222-3333-444455556666", "NVIDIA H200", 0, 0, "0000:01:00.0", 143771, "9.0",
    ecc=True, clock_mhz=1980, cores=16896,
)  # fmt: skip
DRIVER = Driver("", "580.159.04", 13000)


@pytest.mark.parametrize("simulation", sorted(GOLDEN))
def test_the_inventory_is_what_condor_gpu_discovery_prints(simulation: str) -> None:
    assert inventory(simulated(simulation), Driver()) == GOLDEN[simulation]


def test_a_real_gpus_properties_are_all_told() -> None:
    assert inventory([H200], DRIVER) == (
        'DetectedGPUs="GPU-8f9c2d75"\n'
        "Common=[ Capability=9.0; ClockMhz=1980.00; ComputeUnits=132; CoresPerCU=128; "
        'DeviceName="NVIDIA H200"; DevicePciBusId="0000:01:00.0"; '
        'DeviceUuid="8f9c2d75-1111-2222-3333-444455556666"; DriverVersion=13.0; ECCEnabled=true; '
        'GlobalMemoryMb=143771; MaxSupportedVersion=13000; NvidiaDriver="580.159.04"; ]\n'
        'GPU_8f9c2d75=[ id="GPU-8f9c2d75"; ]\n'
    )


def test_a_slot_type_can_select_the_gpus_of_a_payload_container() -> None:
    other = replace(H200, uuid="GPU-aaaaaaaa-1111-2222-3333-444455556666")
    lines = inventory([H200, other], DRIVER, {H200.uuid: [3], other.uuid: [4]}).splitlines()
    assert lines[0] == 'DetectedGPUs="GPU-8f9c2d75, GPU-aaaaaaaa"'
    assert "K8SPayload" not in lines[1]
    assert lines[2].endswith("K8SPayload3=true; ]")
    assert lines[3].endswith("K8SPayload4=true; ]")


def test_a_gpu_that_two_payload_containers_share_can_be_assigned_twice() -> None:
    lines = inventory([H200], DRIVER, {H200.uuid: [1, 2]}).splitlines()
    assert lines[0] == 'DetectedGPUs="GPU-8f9c2d75, GPU-8f9c2d75"'
    assert "K8SPayload1=true; K8SPayload2=true" in lines[2]


def test_without_gpus_there_are_none() -> None:
    assert inventory([], DRIVER) == "DetectedGPUs=0\n"


def test_what_is_not_known_is_left_out() -> None:
    text = inventory([Device("GPU-8f9c2d75-1111-2222-3333-444455556666")], Driver("no NVML"))
    assert text == (
        'DetectedGPUs="GPU-8f9c2d75"\n'
        'Common=[ DeviceUuid="8f9c2d75-1111-2222-3333-444455556666"; ]\n'
        'GPU_8f9c2d75=[ id="GPU-8f9c2d75"; ]\n'
    )


def test_names_of_mig_devices_are_never_shortened() -> None:
    assert short("MIG-0caf0000-1111-2222-3333-444455556666") == "MIG-0caf0000-1111-2222-3333-444455556666"
    assert short(H200.uuid) == "GPU-8f9c2d75"


def test_two_gpus_whose_short_names_are_the_same_have_long_ones() -> None:
    other = replace(H200, uuid="GPU-8f9c2d75-9999-2222-3333-444455556666")
    assert names([H200, other]) == [H200.uuid, other.uuid]


def test_a_devices_name_cannot_end_its_string() -> None:
    text = inventory([replace(H200, name='a"; id="b\\\n')], DRIVER)
    assert 'DeviceName="a_; id=_b__";' in text
