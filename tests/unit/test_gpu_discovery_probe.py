"""The probe, in a process of its own as in a container, with the lab's NVML in the place of the driver's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from k8spilot.gpu.discovery import nvidia
from k8spilot.gpu.discovery.evidence import Device, Evidence
from k8spilot.gpu.discovery.probe import probe
from lab.gpu import nvml

A, B = (f"GPU-{letter * 8}-1111-2222-3333-444455556666" for letter in "ab")
PART = "MIG-0caf0000-1111-2222-3333-444455556666"

INFORMATION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 130
GPU UUID: \t GPU-8f9c2d75-1111-2222-3333-444455556666
Video BIOS: \t 96.00.a5.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
Bus Location: \t 0000:1b:00.0
Device Minor: \t 3
GPU Firmware: \t 580.159.04
GPU Excluded:\t No
"""


def usual() -> nvml.Driver:
    return nvml.Driver([nvml.h200(0, A), nvml.h200(1, B)])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> nvml.Stub:
    return nvml.Stub.make(tmp_path_factory.mktemp("nvml"), usual())


@pytest.fixture
def stub(built: nvml.Stub) -> nvml.Stub:
    built.write(usual())
    return built


def run(stub: nvml.Stub | None = None, **variables: str) -> Evidence:
    environment = {**os.environ, **(stub.environment if stub is not None else {}), **variables}
    done = subprocess.run(
        [sys.executable, "-m", "k8spilot.gpu.discovery.probe"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return Evidence.of(json.loads(done.stdout))


def test_nvml_lists_the_devices_with_what_jobs_ask_for(stub: nvml.Stub) -> None:
    seen = run(stub, NVIDIA_VISIBLE_DEVICES=A)
    assert seen.driver.error == ""
    assert (seen.driver.version, seen.driver.cuda) == ("580.159.04", 13000)
    assert seen.driver.devices[0] == Device(
        A, "NVIDIA H200", 0, 0, "0000:01:00.0", 143771, "9.0", ecc=True, clock_mhz=1980, cores=16896
    )
    assert [one.uuid for one in seen.driver.devices] == [A, B]
    assert seen.variables["NVIDIA_VISIBLE_DEVICES"] == A
    assert 0 < seen.seconds < 10


def test_parts_of_a_gpu_are_devices_and_what_they_do_not_tell_is_as_of_the_whole(stub: nvml.Stub) -> None:
    with stub.change() as driver:
        driver.gpu(0).instances.append(nvml.slice_of_h200(0, PART))
    whole, part, other = run(stub).driver.devices
    assert (whole.uuid, whole.divided, other.uuid, other.divided) == (A, True, B, False)
    assert part == Device(
        PART, "NVIDIA H200 MIG 1g.18gb", 0, None, "0000:01:00.0", 16384, "9.0", ecc=True, clock_mhz=1980, units=16,
        parent=A, instance=(7, 0),
    )  # fmt: skip


def fail(stub: nvml.Stub, function: str, code: int, gpu: int | None = None) -> None:
    with stub.change() as driver:
        (driver if gpu is None else driver.gpu(gpu)).failures[function] = code


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetNumGpuCores",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMinorNumber",
    ],
)
def test_a_question_that_a_device_does_not_answer_leaves_the_others(stub: nvml.Stub, function: str) -> None:
    fail(stub, function, nvml.NOT_SUPPORTED, gpu=0)
    first, second = run(stub).driver.devices
    assert first.uuid == A
    assert first != second
    assert second.memory_mb == 143771


def test_a_driver_that_does_not_start_is_an_answer_too(stub: nvml.Stub) -> None:
    fail(stub, "nvmlInitWithFlags", nvml.DRIVER_NOT_LOADED)
    seen = run(stub)
    assert seen.driver.error.startswith("NVML does not start: ")
    assert seen.driver.devices == ()


def test_a_device_that_is_lost_makes_the_list_worthless(stub: nvml.Stub) -> None:
    fail(stub, nvml.EVERY_FUNCTION, nvml.GPU_IS_LOST, gpu=0)
    assert run(stub).driver.error.startswith("NVML does not list its devices: ")


def test_without_a_gpu_and_a_driver_it_is_quiet() -> None:
    seen = run()
    assert seen.driver.error == "libnvidia-ml.so.1 is missing"
    assert seen.driver.devices == seen.files == ()


def make(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def look(root: Path, **environment: str) -> Evidence:
    return probe(root, environment)


def test_all_kinds_of_evidence_are_gathered(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
            "proc/driver/nvidia/gpus/0000:1b:00.0/information": INFORMATION,
            "proc/self/status": "Name:\tx\nCapBnd:\t00000000a80425fb\n",
            "sys/fs/cgroup/devices/devices.list": "c 1:3 rwm\nc 195:3 rw\n",
            f"var/run/nvidia-container-devices/{A}": "",
            f"var/run/nvidia-container-devices/MIG-{B}/7/0": "",
        },
    )
    (tmp_path / "dev").mkdir()
    if os.geteuid() == 0:
        os.mknod(tmp_path / "dev/nvidia3", 0o20666, os.makedev(195, 3))
    seen = look(tmp_path, NVIDIA_VISIBLE_DEVICES="void", HOME="/", OTHER="x")
    assert seen.variables == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert seen.mounts == (A, f"MIG-{B}/7/0")
    assert seen.cgroup == ("c 1:3 rwm", "c 195:3 rw")
    assert seen.capabilities == 0xA80425FB
    if os.geteuid() == 0:
        assert [(one.path, one.major, one.minor) for one in seen.nodes] == [("/dev/nvidia3", 195, 3)]
        assert seen.allows(3)
    (there,) = seen.files
    assert there == Device("GPU-8f9c2d75-1111-2222-3333-444455556666", "NVIDIA H200", minor=3, pci="0000:1b:00.0")
    assert seen.driver.version == "580.159.04"


def test_an_empty_container_is_looked_at_without_complaint(tmp_path: Path) -> None:
    seen = look(tmp_path)
    assert (seen.variables, seen.mounts, seen.nodes, seen.cgroup) == ({}, (), (), None)


@pytest.mark.parametrize("text", ["", "GPU UUID: GPU-????????-????-????-????-????????????\n", "nonsense"])
def test_a_gpu_without_a_name_is_left_out_of_the_drivers_files(tmp_path: Path, text: str) -> None:
    make(tmp_path, {"gpus/0000:1b:00.0/information": text})
    assert list(nvidia.files(tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13\nGCC version: 9.3.0", "470.57.02"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.113  Release Build", "535.113"),
        ("", ""),
    ],
)
def test_the_drivers_version_is_read_from_its_file(tmp_path: Path, text: str, version: Any) -> None:
    make(tmp_path, {"version": text})
    assert nvidia.version(tmp_path) == version
