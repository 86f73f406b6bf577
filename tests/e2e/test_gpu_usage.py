"""How busy a job kept its GPUs and how much of their memory it had, as HTCondor and Prometheus tell it."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from lab import jobs as lab_jobs
from lab import pilot
from lab.api import Lab
from lab.gpu import node as gpu_node
from lab.gpu import nvml
from lab.levels import NAMESPACES
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import Pool, ads, result, until

LIMIT = "/spec/initContainers/1/resources/limits"
COMPONENTS = ["gpu", "gpu-metrics"]
RIGHTS = CHECKOUT / "components/gpu-metrics/rights.yaml"


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
        """What Prometheus would read: series and value."""
        address = self.pool.status()["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def containers(self) -> list[str]:
        """The ephemeral containers of the pod."""
        return [one["name"] for one in self.pool.status()["spec"].get("ephemeralContainers", [])]


@contextmanager
def measured_pod(lab: Lab, name: str, resource: str, count: int, more: str = "") -> Iterator[Measured]:
    """A pilot with so many GPUs of a kind, which HTCondor has; what was submitted through it ends before it does."""
    operations = [
        {"op": "remove", "path": f"{LIMIT}/nvidia.com~1gpu"},
        {"op": "add", "path": f"{LIMIT}/{resource.replace('/', '~1')}", "value": str(count)},
    ]
    if more:
        operations.append({"op": "add", "path": "/spec/runtimeClassName", "value": more})
    pilot.deploy(
        lab,
        name,
        overlay={"components": COMPONENTS, "patches": [pilot.change(*operations)]},
    )
    try:
        lab_jobs.wait_in_pool(lab, name)
        uuids = json.loads(pilot.inside(lab, name, "k8spilot status --json"))["gpus"]["usable"]
        assert len(uuids) == count
        with ExitStack() as cleanup:
            yield Measured(Pool(lab, name, cleanup), uuids)
    finally:
        pilot.delete(lab, name)


@pytest.fixture(scope="module", autouse=True)
def rights(lab: Lab) -> Iterator[None]:
    """The component's rights hold for all pilots of a namespace: they go when the last of these tests has ended."""
    yield
    for namespace in NAMESPACES.values():
        lab.kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", str(RIGHTS))


@pytest.fixture(scope="module")
def two(lab: Lab, owner: str) -> Iterator[Measured]:
    """A pilot with two of the node's GPUs."""
    name = f"gpu-usage-{owner}"
    with measured_pod(lab, name, "nvidia.com/gpu-cdi-annotations", 2, "nvidia-cdi") as found:
        yield found


def is_measured(measured: Measured) -> None:
    """Wait until the sampler tells of the GPUs."""
    until(lambda: measured.metrics().get("k8spilot_gpu_sampler_up") == 1, "the GPUs are measured", 60)


@pytest.mark.timeout(300)
def test_a_jobs_ad_has_what_its_gpus_did(two: Measured) -> None:
    is_measured(two)
    assert two.containers() == ["gpu-metrics-1"]
    two.load((80, 5000), (30, 1000))
    time.sleep(12)
    jobs = two.pool.shell("sleep 100", request_gpus="2")
    jobs.wait("ExecuteEvent", timeout=90)
    time.sleep(40)
    two.load((80, 9000), (30, 1000))
    done = result(jobs, timeout=150)
    assert done.code == 0
    (ad,) = ads(jobs)
    assert ad["GPUsAverageUsage"] == pytest.approx(1.1, rel=0.05)
    assert ad["GPUsMemoryUsage"] == pytest.approx(9000, rel=0.05)
    assert ad["GPU0AverageUsage"] == pytest.approx(0.8, rel=0.05)
    assert ad["GPU1AverageUsage"] == pytest.approx(0.3, rel=0.05)
    assert ad["GPU0MemoryUsage"] == pytest.approx(9000, rel=0.05)
    assert ad["GPU1MemoryUsage"] == pytest.approx(1000, rel=0.05)
    print({key: value for key, value in ad.items() if "GPU" in key}, dict(done.event))  # noqa: T201


@pytest.mark.timeout(300)
def test_a_job_that_has_two_of_four_gpus_is_told_of_each(lab: Lab, owner: str) -> None:
    name = f"gpu-four-{owner}"
    with measured_pod(lab, name, "nvidia.com/gpu-cdi", 4, "nvidia-cdi") as four:
        is_measured(four)
        four.load((50, 4000), (30, 1000), (0, 0), (0, 0))
        time.sleep(12)
        jobs = four.pool.shell("echo $CUDA_VISIBLE_DEVICES; sleep 100", request_gpus="2")
        done = result(jobs, timeout=200)  # of whole intervals of ten seconds, so that a short one would be told less
        assert done.text.strip().split(",") == four.uuids[:2]
        (ad,) = ads(jobs)
        assert ad["GPUsAverageUsage"] == pytest.approx(0.8, rel=0.05)
        assert [ad[f"GPU{number}AverageUsage"] for number in (0, 1)] == pytest.approx([0.5, 0.3], rel=0.05)
        assert [ad[f"GPU{number}MemoryUsage"] for number in (0, 1)] == pytest.approx([4000, 1000], rel=0.05)


@pytest.mark.timeout(300)
def test_where_nobody_is_root_gpus_are_found_and_given_and_measured_as_well(lab: Lab, owner: str) -> None:
    name = f"gpu-rootless-{owner}"
    with measured_pod(lab.at("restricted"), name, "nvidia.com/gpu-cdi", 2, "nvidia-cdi") as two:
        is_measured(two)
        assert two.containers() == ["gpu-metrics-1"]
        two.load((80, 5000), (0, 0))
        time.sleep(12)
        done = result(jobs := two.pool.shell("echo $CUDA_VISIBLE_DEVICES; sleep 60", request_gpus="1"), timeout=150)
        assert done.text.strip() == two.uuids[0]
        (ad,) = ads(jobs)
        assert ad["GPUsAverageUsage"] == pytest.approx(0.8, rel=0.05)
        assert ad["GPUsMemoryUsage"] == pytest.approx(5000, rel=0.05)
        assert two.pool.faults(180) == []


def test_the_metrics_say_what_the_gpus_do(two: Measured) -> None:
    is_measured(two)
    two.load((60, 7000), (0, 0))
    began, before = time.monotonic(), None
    time.sleep(8)
    before, began = two.metrics(), time.monotonic()
    time.sleep(30)
    after, seconds = two.metrics(), time.monotonic() - began
    first, second = (f'{{gpu="{uuid}"}}' for uuid in two.uuids)
    busy = after[f"k8spilot_gpu_busy_seconds_total{first}"] - before[f"k8spilot_gpu_busy_seconds_total{first}"]
    known = after[f"k8spilot_gpu_known_seconds_total{first}"] - before[f"k8spilot_gpu_known_seconds_total{first}"]
    assert busy == pytest.approx(0.6 * known, rel=0.05)
    assert known == pytest.approx(seconds, abs=6)
    assert after[f"k8spilot_gpu_memory_used_bytes{first}"] == 7000 * nvml.MIB
    assert after[f"k8spilot_gpu_utilization_ratio{first}"] == pytest.approx(0.6, rel=0.05)
    assert after[f"k8spilot_gpu_utilization_ratio{second}"] == 0


@pytest.mark.parametrize(
    ("resource", "runtime"),
    [
        ("nvidia.com/gpu-cdi", "nvidia-cdi"),
        ("nvidia.com/gpu-cdi", "nvidia"),
        ("nvidia.com/gpu-mounts", "nvidia"),
        ("nvidia.com/mig-1g.18gb", "nvidia"),
    ],
)
def test_gpus_are_measured_whichever_way_they_come(lab: Lab, owner: str, resource: str, runtime: str) -> None:
    name = f"gpu-way-{owner}"
    with measured_pod(lab, name, resource, 1, runtime) as measured:
        is_measured(measured)
        assert len(measured.containers()) <= 2


def test_a_cluster_whose_runtime_knows_no_gpus_is_told_what_to_do(lab: Lab, owner: str) -> None:
    name = f"gpu-none-{owner}"
    with measured_pod(lab, name, "nvidia.com/gpu-cdi-annotations", 1) as measured:
        until(
            lambda: "runtimeClassName: nvidia" in lab.kubectl("get", "events", "-n", PILOT_NAMESPACE), "the words", 90
        )
        assert len(measured.containers()) <= 3  # two ways to ask; one whose end says nothing is tried again
        jobs = measured.pool.shell("echo fine", request_gpus="1")
        assert result(jobs, timeout=90).text == "fine\n"
