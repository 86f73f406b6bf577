"""Computations with the sampler's figures, and ways to give a container GPUs: pure functions."""

from itertools import pairwise
from typing import Any

import pytest

from k8spilot.gpu.monitoring.device_access import Unavailable, device_requests
from k8spilot.gpu.monitoring.meter import MIB, GpuUsage, Meter
from k8spilot.gpu.monitoring.monitor_output import METRICS, BlockInterval, blocks
from k8spilot.gpu.monitoring.nvidia import tells_processes
from k8spilot.gpu.monitoring.protocol import DeviceFigures, Figures
from k8spilot.gpu.monitoring.sampler import Tally
from k8spilot.gpu.monitoring.vendor_interface import GpuProcess, Reading

A, B = "GPU-8f9c2d75-0000-4000-8000-000000000000", "GPU-0a000000-0000-4000-8000-000000000000"
C = "GPU-0b000000-0000-4000-8000-000000000000"


class Clock:
    """Seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def said(seconds: float = 5.0, **devices: dict[str, Any]) -> Figures:
    unknown = {"busy": None, "known": 0.0, "memory": None, "peak": None, "total": None, "processes": None, "fault": ""}
    found = {{"a": A, "b": B}[name]: DeviceFigures(**{**unknown, **one}) for name, one in devices.items()}
    return Figures(seconds=seconds, fault="", devices=found)


def test_a_reader_gets_the_seconds_since_it_asked_last() -> None:
    clock = Clock()
    meter = Meter([A, B], clock)
    reader = meter.reader()
    clock.now = 10
    meter.take(said(10.0, a={"busy": 4.0, "known": 10.0, "peak": 7}, b={"busy": 0.0, "known": 10.0, "peak": 0}))
    assert reader.read() == [GpuUsage(A, 4.0, 7), GpuUsage(B, 0.0, 0)]
    clock.now = 20
    meter.take(said(a={"busy": 10.0, "known": 10.0, "peak": 3}))
    assert reader.read() == [GpuUsage(A, 10.0, 3)]


def test_time_that_is_not_known_counts_as_the_rest_does() -> None:
    clock = Clock()
    meter = Meter([A], clock)
    reader = meter.reader()
    clock.now = 10
    assert reader.read() == [], "unknown is not zero"
    clock.now = 20
    meter.take(said(a={"busy": 2.0, "known": 4.0}))
    assert reader.read(lambda _: 60.0) == [GpuUsage(A, 10.0, None)], "half of the time, also of that which is not known"


@pytest.mark.parametrize(
    ("age", "usages"), [(2000.0, [910.0]), (25.0, [910.0]), (10.0, [910.0]), (9.0, []), (0.0, []), (None, [10.0])]
)
def test_a_job_has_its_own_average_however_long_nothing_was_known_before_it(
    age: float | None, usages: list[float]
) -> None:
    clock = Clock()
    meter = Meter([A], clock)
    reader = meter.reader()
    for clock.now in range(10, 910, 10):
        reader.read()
    clock.now = 910
    meter.take(said(10.0, a={"busy": 10.0, "known": 10.0}))
    assert reader.read(lambda _: age) == [GpuUsage(A, busy, None) for busy in usages]


@pytest.mark.parametrize("before", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("began", range(11))
def test_a_jobs_average_is_the_same_whenever_it_begins_and_whatever_ran_before_it(began: int, before: float) -> None:
    clock = Clock()
    meter = Meter([A], clock)
    reader = meter.reader()
    clock.now = told = 0.0
    total = 0.0
    for clock.now in range(1, 41):
        rate = 0.8 if clock.now > 10 + began else before
        meter.take(said(1.0, a={"busy": rate, "known": 1.0, "peak": int(rate * 10)}))
        if clock.now % 10 == 0:
            age = clock.now - 10 - began
            found = reader.read({A: age if age >= 0 else None}.get)
            if found and age > 0:
                (usage,) = found
                assert usage.busy is not None
                assert usage.peak == 8, "memory of what ran before is none of the job's"
                total += usage.busy
            elif found:
                told = clock.now
    assert total / (clock.now - told) == pytest.approx(0.8)


def test_what_was_said_long_ago_is_not_so_any_more() -> None:
    clock = Clock()
    meter = Meter([A], clock)
    meter.take(said(a={"memory": 5}))
    (gpu,) = meter.now()
    assert gpu.last is not None
    clock.now = 30
    (gpu,) = meter.now()
    assert gpu.last is None


def test_an_ad_for_each_gpu_is_for_the_slot_that_has_it_under_either_name() -> None:
    first, second = (f'StringListMember("{one}", AssignedGPUs)' for one in ("GPU-8f9c2d75", A))
    third, fourth = (f'StringListMember("{one}", AssignedGPUs)' for one in ("GPU-0a000000", B))
    text = blocks([GpuUsage(B, 1.5, 3 * MIB + 1), GpuUsage(A, None, 5)], [[A, B]], [0])
    assert text.splitlines() == [
        f"SlotMergeConstraint = {third} || {fourth}",
        "UptimeGPUsSeconds = 1.500000",
        "UptimeGPUsMemoryPeakUsage = 4",
        "UptimeGPU1Seconds = 1.500000",
        "UptimeGPU1MemoryPeakUsage = 4",
        "GPUsUsage = GPUsAverageUsage",
        "- GPUsSlot1",
        f"SlotMergeConstraint = {first} || {second}",
        "UptimeGPUsMemoryPeakUsage = 4",
        "UptimeGPU0MemoryPeakUsage = 1",
        "- GPUsSlot0 update:true",
    ]


def test_each_payload_container_has_its_own_first_gpu_and_its_own_peak() -> None:
    lines = blocks([GpuUsage(B, 1.5, 3 * MIB), GpuUsage(A, None, 5 * MIB)], [[A], [B]]).splitlines()
    end = lines.index("- GPUsSlot1")
    assert {"UptimeGPU0MemoryPeakUsage = 3", "UptimeGPUsMemoryPeakUsage = 3"} <= set(lines[:end])
    assert {"UptimeGPU0MemoryPeakUsage = 5", "UptimeGPUsMemoryPeakUsage = 5", "- GPUsSlot0"} <= set(lines[end:])


@pytest.mark.parametrize(
    ("due", "asking"), [([], []), ([0], ["GPUsSlot1"]), ([1], ["GPUsSlot2"]), ([0, 1], ["GPUsSlot1", "GPUsSlot2"])]
)
def test_the_startd_writes_the_usage_of_each_slot_that_is_due(due: list[int], asking: list[str]) -> None:
    usages = [GpuUsage(A, 1.5, MIB), GpuUsage(B, 1.5, MIB), GpuUsage(C, 1.5, MIB)]
    lines = blocks(usages, [[A, B], [C]], due).splitlines()
    assert [line for line in lines if "update" in line] == [f"- {name} update:true" for name in asking]


def test_a_gpu_without_a_job_reports_what_another_gpus_job_does_not_count() -> None:
    """A has a job since one second, B has none: the message of five seconds is partly from before A's job."""
    clock = Clock()
    meter = Meter([A, B], clock)
    reader = meter.reader()
    clock.now = 10
    meter.take(said(a={"busy": 4.0, "known": 5.0}, b={"busy": 1.0, "known": 5.0}))
    assert [usage.uuid for usage in reader.read({A: 1.0}.get)] == [B]


def test_every_figure_that_is_told_is_a_metric_that_htcondor_knows() -> None:
    known = {one.strip() for one in METRICS.split(",")}
    assert {"SUM:GPUs", "PEAK:GPUsMemory", "SUM:GPU15", "PEAK:GPU15Memory"} <= known


def test_the_startd_writes_down_often_at_first_and_when_the_peak_grows() -> None:
    pace = BlockInterval()
    told = [age for age in range(10, 3600, 10) if pace.due([GpuUsage(A, 1.0, 100)], float(age), float(age))]
    pairs = list(pairwise(told))
    assert told[:3] == [10, 20, 30]
    assert all(later - earlier <= max(10, 0.06 * later + 10) for earlier, later in pairs)
    assert max(later - earlier for earlier, later in pairs) == 120
    assert pace.due([GpuUsage(A, 1.0, 104)], 3601.0, 3601.0)
    assert not pace.due([GpuUsage(A, 1.0, 104)], 3602.0, 3602.0)
    assert not pace.due([GpuUsage(A, 1.0, 10_000)], None, 3603.0), "no job runs"


def test_a_tally_keeps_the_peak_and_does_not_make_zero_of_what_is_not_known() -> None:
    tally = Tally()
    tally.add(Reading(memory=5))
    tally.add(Reading(memory=9))
    tally.add(Reading(fault="GPU is lost"))
    assert (tally.busy, tally.peak, tally.memory, tally.fault) == (None, 9, None, "GPU is lost")


def test_more_processes_than_can_be_told_are_not_made_fewer() -> None:
    tally = Tally()
    tally.add(Reading(processes=[GpuProcess(pid, 1, None) for pid in range(64)]))
    assert len(tally.json()["processes"]) == 64
    tally.add(Reading(processes=[GpuProcess(pid, 1, None) for pid in range(65)]))
    assert tally.json()["processes"] is None


@pytest.mark.parametrize(
    ("driver", "does"),
    [
        ("535.104.05", False),
        ("535.113.01", True),
        ("535.113", True),
        ("470.256.02", False),
        ("550.54.15", True),
        ("1000.1", True),
        ("", False),
        (None, False),
    ],
)
def test_drivers_before_535_113_do_not_tell_which_of_our_processes_use_a_gpu(driver: str | None, does: bool) -> None:
    assert tells_processes(driver) is does


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"initContainers": [{"name": "payload"}], "containers": [{"name": "pilot"}], **spec}}


def ways(strategy: str, given: dict[str, Any]) -> Any:
    return device_requests(strategy, [A], [A], given, "payload")


def test_the_way_to_the_devices_is_that_of_the_payload_container() -> None:
    null = {"volumes": [{"name": "null", "hostPath": {"path": "/dev/null"}}]}
    folder = "/var/run/nvidia-container-devices"
    assert [one.visible for one in ways("variable", pod())] == [A]
    assert [one.visible for one in ways("cdi", pod())] == [f"k8s.device-plugin.nvidia.com/gpu={A}", A]
    (by_mounts,) = ways("volume-mounts", pod(**null))
    assert (by_mounts.visible, by_mounts.mounts) == (folder, (("null", f"{folder}/{A}"),))


@pytest.mark.parametrize(
    ("strategy", "given", "words"),
    [
        ("variable", pod(), "runtimeClassName: nvidia"),
        ("cdi", pod(), "runtimeClassName: nvidia"),
        ("cdi", pod(runtimeClassName="nvidia"), "RuntimeClass nvidia"),
        ("volume-mounts", pod(), "hostPath"),
    ],
)
def test_each_way_says_what_an_administrator_can_do(strategy: str, given: dict[str, Any], words: str) -> None:
    assert words in ways(strategy, given)[-1].help


def test_what_an_ephemeral_container_cannot_have_is_not_tried() -> None:
    claimed = pod()
    claimed["spec"]["initContainers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    assert isinstance(ways("cdi", claimed), Unavailable)


def test_an_id_that_leads_out_of_its_folder_is_not_mounted() -> None:
    given = pod(volumes=[{"name": "null", "hostPath": {"path": "/dev/null"}}])
    (one,) = device_requests("volume-mounts", ["../../etc", "/etc", A], [A], given, "payload")  # type: ignore[misc]
    assert [path for _, path in one.mounts] == [f"/var/run/nvidia-container-devices/{A}"]
