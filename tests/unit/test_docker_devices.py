"""Devices that a job asks docker for, against the pod's; and which GPUs a job is shown."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from k8spilot.common.errors import Refused
from k8spilot.docker.create_request.devices import visible
from k8spilot.docker.create_request.job_ad import JobAd
from k8spilot.docker.create_request.specification import SlotLimits, specification
from k8spilot.gpu.discovery.evidence import Node
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.model.disk import LastRun
from tests.unit.test_gpu_discovery_verdict import NONE, PARTS, TWO, WHOLE, A, B, C, seen

EXECUTE = "/var/lib/condor/execute"
FUSE = Node("/dev/fuse", "c", 10, 229)
PAIR = seen(A, B, visible=f"{A.uuid},{B.uuid}")
PLACES = {
    "none": SlotLimits(EXECUTE, gpus=GpuRecord(NONE, seen())),
    "two": SlotLimits(EXECUTE, gpus=GpuRecord(TWO, PAIR)),
    "parts": SlotLimits(
        EXECUTE, gpus=GpuRecord(NONE, seen(WHOLE, *PARTS, visible=",".join(one.uuid for one in PARTS)))
    ),
    "bare": SlotLimits(
        EXECUTE, gpus=GpuRecord(TWO, seen(A, B, visible=f"{A.uuid},{B.uuid}", nodes=(*PAIR.nodes[:2], FUSE)))
    ),
}


def node(path: str, inside: str | None = None) -> dict[str, Any]:
    return {"PathOnHost": path, "PathInContainer": path if inside is None else inside, "CgroupPermissions": "rwm"}


def gpus(count: int = 0, *ids: str, driver: str = "", capabilities: tuple[str, ...] = ("gpu",)) -> dict[str, Any]:
    asked = {"Driver": driver, "Count": count, "DeviceIDs": list(ids) or None, "Options": {}}
    return {**asked, "Capabilities": [list(capabilities)] if driver != "cdi" else None}


def cdi(name: str) -> dict[str, Any]:
    return gpus(0, name, driver="cdi")


def create(place: str, asked: dict[str, Any]) -> None:
    key = "Devices" if "PathOnHost" in asked else "DeviceRequests"
    specification({"Image": "a", "HostConfig": {key: [asked]}}, PLACES[place])


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ("two", node("/dev/nvidia0")),
        ("two", node("/dev/nvidia1")),
        ("two", node("/dev/nvidiactl")),
        ("two", node("/dev/null")),
        # Some nodes have none of these, and HTCondor asks for them all the same.
        ("bare", node("/dev/nvidiactl")),
        ("bare", node("/dev/nvidia-uvm")),
        ("bare", node("/dev/fuse")),
        ("two", gpus(-1)),
        ("two", gpus(1)),
        ("two", gpus(2, capabilities=("gpu", "compute", "utility"))),
        ("two", gpus(-1, driver="nvidia")),
        ("two", gpus(0, "0", "1")),
        ("two", gpus(0, A.uuid)),
        ("two", gpus(0, A.uuid[:12])),
        ("two", gpus(0, A.uuid.removeprefix("GPU-"))),
        ("parts", gpus(0, PARTS[0].uuid)),
        ("two", cdi("nvidia.com/gpu=all")),
        ("two", cdi("nvidia.com/gpu=1")),
        ("two", cdi(f"k8s.device-plugin.nvidia.com/gpu={B.uuid}")),
    ],
    ids=str,
)
def test_devices_that_the_pod_has_are_fine(place: str, asked: dict[str, Any]) -> None:
    create(place, asked)


@pytest.mark.parametrize(
    ("place", "asked", "words"),
    [
        ("none", node("/dev/nvidia0"), "the pod does not have the device /dev/nvidia0"),
        ("none", node("/dev/nvidiactl"), "the pod does not have the device /dev/nvidiactl"),
        ("two", node("/dev/nvidia2"), "the pod does not have the device /dev/nvidia2"),
        ("two", node("/dev/sda"), "ask the site for it"),
        ("two", node("/dev/nvidia0", "/dev/gpu"), "is not available as /dev/gpu"),
        ("none", gpus(-1), "requests GPUs from docker, but the pod has none"),
        ("none", gpus(1), "request_gpus"),
        ("two", gpus(3), "requests 3 GPUs from docker, but the pod has GPU-a"),
        ("two", gpus(0, "2"), "the pod does not have the GPU 2"),
        ("two", gpus(0, C.uuid), f"the pod does not have the GPU {C.uuid}"),
        ("two", gpus(0, ""), "the pod does not have the GPU"),
        ("two", gpus(1, driver="amd"), "devices of the kind amd are not available"),
        ("two", gpus(1, capabilities=("tpu",)), "devices of the kind tpu are not available"),
        ("none", cdi("nvidia.com/gpu=all"), "docker option --device nvidia.com/gpu=all"),
        ("two", cdi("nvidia.com/gpu=2"), "does not have the GPU nvidia.com/gpu=2"),
        ("two", cdi("vendor.example/class=name"), "does not have the GPU vendor.example/class=name"),
        ("two", cdi("evilnvidia.com/gpu=all"), "the pod does not have the GPU"),
    ],
    ids=str,
)
def test_devices_that_it_has_not_are_refused_in_a_sentence(place: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=r"docker option --(device|gpus)") as refusal:
        create(place, asked)
    assert words in str(refusal.value)


ENVIRONMENT = (
    f"CUDA_VISIBLE_DEVICES={A.uuid},{B.uuid}",
    f"NVIDIA_VISIBLE_DEVICES={A.uuid},{B.uuid}",
    "_CONDOR_AssignedGPUs=GPU-aaaaaaaa,GPU-bbbbbbbb",
    "GPU_DEVICE_ORDINAL=GPU-aaaaaaaa,GPU-bbbbbbbb",
    "X=GPU-a,GPU-b",
)


@pytest.mark.parametrize(
    ("wanted", "cuda", "nvidia", "assigned"),
    [
        (None, f"{A.uuid},{B.uuid}", f"{A.uuid},{B.uuid}", "GPU-aaaaaaaa,GPU-bbbbbbbb"),
        (2, f"{A.uuid},{B.uuid}", f"{A.uuid},{B.uuid}", "GPU-aaaaaaaa,GPU-bbbbbbbb"),
        (1, A.uuid, A.uuid, "GPU-aaaaaaaa"),
        (0, "10000", "none", "10000"),
    ],
)
def test_a_job_sees_as_many_gpus_as_it_asked_for(wanted: int | None, cuda: str, nvidia: str, assigned: str) -> None:
    assert list(visible(ENVIRONMENT, wanted)) == [
        f"CUDA_VISIBLE_DEVICES={cuda}",
        f"NVIDIA_VISIBLE_DEVICES={nvidia}",
        f"_CONDOR_AssignedGPUs={assigned}",
        f"GPU_DEVICE_ORDINAL={assigned}",
        "X=GPU-a,GPU-b",
    ]


def test_what_htcondor_says_of_no_gpu_is_left_alone() -> None:
    nothing = ("CUDA_VISIBLE_DEVICES=10000", "NVIDIA_VISIBLE_DEVICES=none")
    assert tuple(visible(nothing, 0)) == nothing


@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ('Cmd = "x"\nRequestGPUs = 2\nA = 1\n', 2),
        ("requestgpus=0\n", 0),
        ("RequestGPUs \t= \t 3 \t\r\n", 3),
        ("RequestCpus = 1\n", 0),
        ("RequestGPUs = ifThenElse(x, 1, 2)\n", None),
        ("RequestGPUs = -1\n", None),
        ("RequestGPUs = 1.5\n", None),
    ],
)
def test_the_jobs_own_ad_says_how_many_it_asked_for(tmp_path: Path, ad: str, wanted: int | None) -> None:
    (tmp_path / "dir_1").mkdir()
    (tmp_path / "dir_1/.job.ad").write_text(ad)
    assert JobAd.read((f"_CONDOR_SCRATCH_DIR={tmp_path}/dir_1",), str(tmp_path)).gpus == wanted


def test_an_ad_that_a_job_has_made_long_is_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "dir_1").mkdir()
    (tmp_path / "dir_1/.job.ad").write_bytes(b"RequestGPUs = 1" + b" " * 30_000 + b"x\n")
    began = time.thread_time()
    assert JobAd.read((f"_CONDOR_SCRATCH_DIR={tmp_path}/dir_1",), str(tmp_path)).gpus is None
    assert time.thread_time() - began < 0.5, "the engine does nothing else meanwhile"


def test_an_ad_that_is_none_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "dir_1").mkdir()
    sandbox = f"_CONDOR_SCRATCH_DIR={tmp_path}/dir_1"
    assert JobAd.read((sandbox,), str(tmp_path)).gpus is None
    (tmp_path / "elsewhere").write_text("RequestGPUs = 1\n")
    (tmp_path / "dir_1/.job.ad").symlink_to("../elsewhere")
    assert JobAd.read((sandbox,), str(tmp_path)).gpus is None
    (tmp_path / "dir_1/.job.ad").unlink()
    os.mkfifo(tmp_path / "dir_1/.job.ad")
    assert JobAd.read((sandbox,), str(tmp_path)).gpus is None
    assert JobAd.read((sandbox,), "/var/lib/condor/execute").gpus is None
    assert JobAd.read((f"{sandbox}/../dir_1",), str(tmp_path)).gpus is None
    assert JobAd.read((), str(tmp_path)).gpus is None


@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ("RequestDisk = 65536\n", 64 << 20),
        ("requestdisk=1\n", 1024),
        ("RequestDisk = DiskUsage\n", None),
        ("RequestDisk = -1\n", None),
        ("RequestDiskOfMine = 5\n", None),
        ("RequestDisk = 9999999999999999\n", None),
    ],
)
def test_the_jobs_own_ad_says_how_much_disk_it_asked_for(tmp_path: Path, ad: str, wanted: int | None) -> None:
    (tmp_path / "dir_1").mkdir()
    (tmp_path / "dir_1/.job.ad").write_text(ad)
    assert JobAd.read((f"_CONDOR_SCRATCH_DIR={tmp_path}/dir_1",), str(tmp_path)).disk == wanted


_VACATED = 'LastRemoteHost = "slot1@Site.pilot-1"\nLastVacateTime = 900\n'


@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ("", None),
        ('LastRemoteHost = "slot1@Site.pilot-1"\n', None),
        ('LastRemoteHost = "slot1@a/b"\nLastVacateTime = 900\n', None),
        (_VACATED, LastRun("Site.pilot-1", 900, None, is_first=True, slot="slot1")),
        (
            f"{_VACATED}JobCurrentStartDate = 800\nNumJobStarts = 1\n",
            LastRun("Site.pilot-1", 900, 800, is_first=True, slot="slot1"),
        ),
        (
            f"{_VACATED}JobLastStartDate = 700\nJobCurrentStartDate = 950\nNumJobStarts = 2\n",
            LastRun("Site.pilot-1", 900, 700, is_first=False, slot="slot1"),
        ),
    ],
)
def test_the_jobs_own_ad_says_where_and_when_it_ran_last(tmp_path: Path, ad: str, wanted: LastRun | None) -> None:
    (tmp_path / "dir_1").mkdir()
    (tmp_path / "dir_1/.job.ad").write_text(ad)
    assert JobAd.read((f"_CONDOR_SCRATCH_DIR={tmp_path}/dir_1",), str(tmp_path)).last_run == wanted
