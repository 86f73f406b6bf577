"""Utilisation of a job's GPUs and their memory in use, as HTCondor and Prometheus tell it."""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest

from lab import jobs as lab_jobs
from lab import pilot
from lab.api import Lab
from lab.gpu import node as gpu_node
from lab.gpu import nvml
from lab.http import opened
from lab.levels import NAMESPACES
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import MATCHED_SECONDS, Pool, Result, ads, result, until
from tests.gpus import skip_without_start

LIMIT = "/spec/initContainers/1/resources/limits"
COMPONENTS = ["gpu", "gpu-metrics"]
RIGHTS = CHECKOUT / "components/gpu-metrics/rights.yaml"
SECONDS: Final = 50
"""Time of a measured job. HTCondor samples whole intervals of ten seconds."""
LATE: Final = 0.15
"""HTCondor divides the monitor's figure by the time until it reads it: a line read 5 s late lowers the average."""


@dataclass
class Measured:
    """A pilot with GPUs."""

    pool: Pool
    uuids: list[str]
    """In the order in which jobs see them."""

    def load(self, *loads: tuple[float, int], since: float | None = None) -> None:
        """Have the GPUs be busy to so many per cent, with so many MiB in use, from now on."""
        with gpu_node.stub(self.pool.lab.settings).change() as driver:
            for uuid, (percent, mebibytes) in zip(self.uuids, loads, strict=True):
                driver.gpu(uuid).busy(percent, since)
                driver.gpu(uuid).used_bytes = mebibytes * nvml.MIB

    def metrics(self) -> dict[str, float]:
        """Return the metrics that Prometheus would read: series and value."""
        address = self.pool.status()["status"]["podIP"]
        with opened(f"http://{address}:9464/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def shows(self, *loads: tuple[float, int]) -> None:
        """Wait until the metrics tell of these loads, so that nothing of an earlier one is in what comes."""

        def all_of_them() -> bool:
            series = self.metrics()
            return all(
                abs(series.get(of("k8spilot_gpu_utilization_ratio", uuid), -1) - percent / 100) < 0.01
                and series.get(of("k8spilot_gpu_memory_used_bytes", uuid)) == mebibytes * nvml.MIB
                for uuid, (percent, mebibytes) in zip(self.uuids, loads, strict=True)
            )

        until(all_of_them, "the GPUs are measured", 60)

    def containers(self) -> list[str]:
        """The ephemeral containers of the pod."""
        return [one["name"] for one in self.pool.status()["spec"].get("ephemeralContainers", [])]


def of(series: str, uuid: str) -> str:
    """The series of a GPU."""
    return f'{series}{{gpu="{uuid}"}}'


@contextmanager
def measured_pod(
    lab: Lab, name: str, resource: str, count: int, more: str = "", *, containers: int = 1
) -> Iterator[Measured]:
    """A pilot with so many GPUs of a kind, which HTCondor has; what was submitted through it ends before it does.

    With more than one payload container, each has as many GPUs as the others.
    """
    operations = [
        {"op": "remove", "path": f"{LIMIT}/nvidia.com~1gpu"},
        {"op": "add", "path": f"{LIMIT}/{resource.replace('/', '~1')}", "value": str(count)},
        {"op": "replace", "path": f"{LIMIT}/cpu", "value": str(containers)},
    ]
    if more:
        operations.append({"op": "add", "path": "/spec/runtimeClassName", "value": more})
    pilot.deploy(
        lab,
        name,
        overlay={"components": COMPONENTS, "patches": [pilot.change(*operations)]},
        slots=containers,
    )
    try:
        lab_jobs.wait_in_pool(lab, name)
        uuids = json.loads(pilot.inside(lab, name, "k8spilot status --json || true"))["gpus"]["usable"]
        assert len(uuids) == count
        with ExitStack() as cleanup:
            yield Measured(Pool(lab, name, cleanup), uuids)
    finally:
        pilot.delete(lab, name)


@pytest.fixture(scope="module", autouse=True)
def rights(lab: Lab) -> Iterator[None]:
    """The component's rights hold for all pilots of a namespace: they go when the last of these tests has ended.

    Some of them run beside each other, in processes of their own.
    """
    with (lab.settings.state / "gpu-rights.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield
        with suppress(BlockingIOError):  # another's tests have not ended
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for namespace in NAMESPACES.values():
                lab.kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", str(RIGHTS))


@dataclass(frozen=True)
class Story:
    """A job that had two of three GPUs, and what was told of it."""

    done: Result
    ad: Mapping[str, Any]
    before: Mapping[str, float]
    """Metrics that Prometheus would have read while the job ran."""
    after: Mapping[str, float]
    """So many seconds later, under the same load."""
    seconds: float
    pod: Measured


@pytest.fixture(scope="module")
def story(lab: Lab, owner: str) -> Iterator[Story]:
    """The memory that its first GPU has in use grows while it runs."""
    with measured_pod(lab, f"gpu-usage-{owner}", "nvidia.com/gpu-cdi-annotations", 3, "nvidia-cdi") as pod:
        pod.load((80, 5000), (30, 1000), (0, 0))
        pod.shows((80, 5000), (30, 1000), (0, 0))
        jobs = pod.pool.shell(f"echo $CUDA_VISIBLE_DEVICES; sleep {SECONDS}", request_gpus="2")
        jobs.wait("ExecuteEvent", timeout=MATCHED_SECONDS)
        before, began = pod.metrics(), time.monotonic()
        time.sleep(SECONDS / 2)
        after, seconds = pod.metrics(), time.monotonic() - began
        pod.load((80, 9000), (30, 1000), (0, 0))
        done = result(jobs, timeout=150)
        (ad,) = ads(jobs)
        yield Story(done, ad, before, after, seconds, pod)


@pytest.mark.timeout(300)
def test_a_jobs_ad_has_what_its_gpus_did(story: Story) -> None:
    ad = story.ad
    assert story.done.code == 0
    assert story.pod.containers() == ["gpu-metrics-1"]
    assert story.done.text.strip().split(",") == story.pod.uuids[:2]
    assert ad["GPUsAverageUsage"] == pytest.approx(1.1, rel=LATE)
    assert ad["GPUsMemoryUsage"] == pytest.approx(9000, rel=0.05)
    assert ad["GPU0AverageUsage"] == pytest.approx(0.8, rel=LATE)
    assert ad["GPU1AverageUsage"] == pytest.approx(0.3, rel=LATE)
    assert ad["GPU0MemoryUsage"] == pytest.approx(9000, rel=0.05)
    assert ad["GPU1MemoryUsage"] == pytest.approx(1000, rel=0.05)


@pytest.mark.timeout(300)
def test_the_metrics_say_what_the_gpus_do(story: Story) -> None:
    first, _, third = story.pod.uuids
    busy, known = (
        story.after[of(f"k8spilot_gpu_{what}_seconds_total", first)]
        - story.before[of(f"k8spilot_gpu_{what}_seconds_total", first)]
        for what in ("busy", "known")
    )
    assert busy == pytest.approx(0.8 * known, rel=0.05)
    assert known == pytest.approx(story.seconds, abs=6)
    assert story.after[of("k8spilot_gpu_memory_used_bytes", first)] == 5000 * nvml.MIB
    assert story.after[of("k8spilot_gpu_utilization_ratio", first)] == pytest.approx(0.8, rel=0.05)
    assert story.after[of("k8spilot_gpu_utilization_ratio", third)] == 0


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_two_jobs_side_by_side_have_the_figures_of_their_own_gpus(lab: Lab, owner: str) -> None:
    with measured_pod(lab, f"gpu-two-{owner}", "nvidia.com/gpu-cdi", 2, "nvidia-cdi", containers=2) as two:
        loads = dict(zip(two.uuids, ((80, 5000), (30, 1000)), strict=True))
        two.load(*loads.values())
        two.shows(*loads.values())
        assert two.containers() == ["gpu-metrics-1"], "one container measures for both"
        script = f"echo $CUDA_VISIBLE_DEVICES; sleep {SECONDS}"
        running = [two.pool.shell(script, request_gpus="1", request_memory="64M") for _ in loads]
        seen = {}
        for one in running:
            uuid = result(one, timeout=150).text.strip()
            (ad,) = ads(one)
            seen[uuid] = (ad["GPUsAverageUsage"], ad["GPUsMemoryUsage"])
        assert seen == {
            uuid: (pytest.approx(percent / 100, rel=LATE), pytest.approx(mebibytes, rel=0.05))
            for uuid, (percent, mebibytes) in loads.items()
        }


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_where_nobody_is_root_gpus_are_found_and_given_and_measured_as_well(lab: Lab, owner: str) -> None:
    name = f"gpu-rootless-{owner}"
    with measured_pod(lab.at("restricted"), name, "nvidia.com/gpu-cdi", 2, "nvidia-cdi") as two:
        two.load((80, 5000), (0, 0))
        two.shows((80, 5000), (0, 0))
        assert two.containers() == ["gpu-metrics-1"]
        jobs = two.pool.shell(f"echo $CUDA_VISIBLE_DEVICES; sleep {SECONDS}", request_gpus="1")
        done = result(jobs, timeout=150)
        assert done.text.strip() == two.uuids[0]
        (ad,) = ads(jobs)
        assert ad["GPUsAverageUsage"] == pytest.approx(0.8, rel=LATE)
        assert ad["GPUsMemoryUsage"] == pytest.approx(5000, rel=0.05)
        assert two.pool.faults(180) == []


@pytest.mark.landing
@pytest.mark.parametrize(
    ("resource", "runtime"),
    [
        pytest.param("nvidia.com/gpu-mounts", "nvidia", marks=pytest.mark.xdist_group("gpus by mounts")),
        pytest.param("nvidia.com/mig-1g.18gb", "nvidia", marks=pytest.mark.xdist_group("mig")),
        pytest.param("nvidia.com/gpu-cdi", "nvidia", marks=pytest.mark.nightly),
    ],
)
def test_gpus_are_measured_whichever_way_they_come(lab: Lab, owner: str, resource: str, runtime: str) -> None:
    skip_without_start(lab, resource)
    with measured_pod(lab, f"gpu-way-{owner}", resource, 1, runtime) as measured:
        until(lambda: measured.metrics().get("k8spilot_gpu_sampler_up") == 1, "the GPUs are measured", 60)
        assert len(measured.containers()) <= 2


@pytest.mark.xdist_group("gpus without a runtime")
def test_a_cluster_whose_runtime_knows_no_gpus_is_told_what_to_do(lab: Lab, owner: str) -> None:
    name = f"gpu-none-{owner}"
    with measured_pod(lab, name, "nvidia.com/gpu-cdi-annotations", 1) as measured:
        selector = f"involvedObject.name={name}"
        events = ("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector)
        until(lambda: "runtimeClassName: nvidia" in lab.kubectl(*events), "the words", 90)
        assert len(measured.containers()) <= 3  # two ways to ask; one whose end says nothing is tried again
        jobs = measured.pool.shell("echo fine", request_gpus="1")
        assert result(jobs, timeout=90).text == "fine\n"
