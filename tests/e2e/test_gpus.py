"""GPUs for jobs: found in the payload container, matched by HTCondor, and shown to the jobs that asked for them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.pilot import SUPERVISOR
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, result, until
from tests.gpus import GOLDEN, OPTIONS, skip_without_start

LOOK = """
env | grep -E '^(CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|_CONDOR_AssignedGPUs)='
ls /dev | grep '^nvidia[0-9]' | sed 's/^/node=/'
"""

DISCOVERY = "/usr/libexec/condor/condor_gpu_discovery"


def overlay(resource: str, count: int, runtime: str | None) -> dict[str, Any]:
    """More fields of a kustomization: the component, with so many of another resource."""
    limits = "/spec/initContainers/1/resources/limits"
    operations = [
        {"op": "remove", "path": f"{limits}/nvidia.com~1gpu"},
        {"op": "add", "path": f"{limits}/{resource.replace('/', '~1')}", "value": str(count)},
        *([{"op": "add", "path": "/spec/runtimeClassName", "value": runtime}] if runtime else []),
    ]
    return {"components": ["gpu"], "patches": [pilot.change(*operations)]}


@contextmanager
def gpu_pod(lab: Lab, name: str, resource: str, count: int, runtime: str | None) -> Iterator[str]:
    """A pilot pod with GPUs, in the pool."""
    pilot.deploy(lab, name, overlay=overlay(resource, count, runtime))
    try:
        jobs.wait_in_pool(lab, name)
        yield name
    finally:
        pilot.delete(lab, name)


@pytest.fixture(scope="module")
def two(lab: Lab, owner: str) -> Iterator[str]:
    """A pod with two GPUs."""
    with gpu_pod(lab, f"e2e-{owner}-gpus", "nvidia.com/gpu-cdi", 2, None) as name:
        yield name


@pytest.fixture
def gpus(pool: Pool, two: str) -> Pool:
    """The pool, through that pod."""
    return pool.of_pod(two)


def look(pool: Pool, **commands: Any) -> dict[str, list[str]]:
    """Run a job, and return the values that it prints of its GPUs, by name."""
    found: dict[str, list[str]] = {}
    for line in result(pool.shell(LOOK, **commands), timeout=90).text.splitlines():
        name, _, value = line.partition("=")
        found.setdefault(name, []).append(value)
    return found


ASK = "/opt/k8spilot/libexec/engine-get get /run/k8spilot/docker.sock /k8spilot/gpus 10"


def told(pool: Pool) -> dict[str, Any]:
    """Return the engine's answer about the pod's GPUs."""
    answer = pool.inside(ASK)
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.parametrize("simulation", sorted(GOLDEN))
def test_the_golden_output_is_that_of_htcondors_own_discovery(lab: Lab, simulation: str) -> None:
    assert lab.access_point("alice", [DISCOVERY, *OPTIONS, f"-simulate:{simulation}"]) == GOLDEN[simulation]


@pytest.mark.cluster
def test_a_job_that_asks_for_one_of_two_gpus_sees_one(gpus: Pool) -> None:
    found = told(gpus)
    usable = found["usable"]
    assert (found["strategy"], found["problem"], gpus.of_slot("GPUs")) == ("cdi", None, "2")
    seen = look(gpus, request_gpus="1")
    assert seen["CUDA_VISIBLE_DEVICES"] == seen["NVIDIA_VISIBLE_DEVICES"] == usable[:1]
    assert seen["_CONDOR_AssignedGPUs"] == [usable[0][:12]]
    assert len(seen["node"]) == 2


def test_a_job_that_asks_for_both_sees_both(gpus: Pool) -> None:
    assert look(gpus, request_gpus="2")["CUDA_VISIBLE_DEVICES"] == [",".join(told(gpus)["usable"])]


def test_a_job_that_asks_for_none_is_shown_none(gpus: Pool) -> None:
    seen = look(gpus)
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["NVIDIA_VISIBLE_DEVICES"]) == (["10000"], ["none"])


PROPERTIES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"require_gpus": "Capability >= 9.0"}, {"require_gpus": "Capability > 9.0"}),
    ({"require_gpus": "GlobalMemoryMb >= 143771"}, {"require_gpus": "GlobalMemoryMb > 143771"}),
    ({"gpus_minimum_memory": "140G"}, {"gpus_minimum_memory": "141G"}),
    ({"gpus_minimum_capability": "8.6"}, {"gpus_minimum_capability": "9.1"}),
    ({"gpus_minimum_runtime": "13.0"}, {"gpus_minimum_runtime": "13.1"}),
    ({"require_gpus": 'DeviceName == "NVIDIA H200"'}, {"require_gpus": 'DeviceName == "NVIDIA A100"'}),
]
"""Pairs of submit commands: properties that the pod's GPUs have, and properties that they do not have."""


@pytest.mark.timeout(300)
def test_properties_of_the_gpus_decide_which_jobs_come(gpus: Pool) -> None:
    """A job for each that does not fit is in the queue all the while."""
    stay, come = (
        [gpus.shell("echo", user=user, request_gpus=count, **(pair[which])) for pair in PROPERTIES]  # type: ignore[arg-type]
        for which, user, count in ((1, "alice", "1"), (0, "bob", "2"))
    )
    assert [result(one, timeout=90).text for one in come] == ["\n"] * len(PROPERTIES)
    for one in stay:
        one.look()
    assert [[event.kind for event in one.events] for one in stay] == [["SubmitEvent"]] * len(PROPERTIES)


def test_three_of_two_gpus_are_not_to_be_had(gpus: Pool) -> None:
    stays = gpus.shell("echo no", request_gpus="3")
    assert look(gpus, user="bob", request_gpus="2")["CUDA_VISIBLE_DEVICES"]
    stays.look()
    assert [event.kind for event in stays.events] == ["SubmitEvent"]


@pytest.mark.landing
def test_a_pilot_that_starts_again_in_its_pod_has_the_same_gpus_and_does_not_look_again(gpus: Pool) -> None:
    assert look(gpus, request_gpus="1")["node"]
    before, inventory = told(gpus), gpus.inside("/run/k8spilot/condor/gpu-inventory")
    starts, startd = restarts(gpus), gpus.of_slot("DaemonStartTime")
    gpus.ends_its_container(f"kill -KILL $(pgrep -of {SUPERVISOR})")
    until(lambda: restarts(gpus) == starts + 1, "the pilot has started again", 60)
    # On CRI-O, the first HTCondor lives until then.
    until(lambda: gpus.has_another_startd(startd), "its HTCondor has started again", 60)
    assert told(gpus) == before
    assert gpus.inside("/run/k8spilot/condor/gpu-inventory") == inventory
    until(lambda: gpus.of_slot("State") == "Unclaimed", "the slot is free again", 120)
    assert look(gpus, request_gpus="2")["CUDA_VISIBLE_DEVICES"] == [",".join(before["usable"])]


def restarts(pool: Pool) -> int:
    return int(pool.status()["status"]["containerStatuses"][0]["restartCount"])


DAILY, NIGHTLY = pytest.mark.xdist_group("ways of gpus"), pytest.mark.nightly
"""A way for each kind of evidence; the others are alike (tests/unit/test_gpu_discovery_verdict.py has them all)."""
STRATEGIES = [
    # What the pod asks for, how many, the node's runtime -> how the pod is seen to have got them, and how many.
    pytest.param("nvidia.com/gpu", 1, "nvidia-legacy", "variable", 1, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu", 2, "nvidia-legacy", "variable", 2, marks=DAILY),
    pytest.param("nvidia.com/gpu", 1, "nvidia", "cdi", 1, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu-mounts", 2, "nvidia-legacy", "volume-mounts", 2, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu-mounts", 2, "nvidia", "volume-mounts", 2, marks=DAILY),
    pytest.param("nvidia.com/gpu-cdi-annotations", 4, None, "cdi", 4, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu-cdi", 1, None, "cdi", 1, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu-device-specs", 2, "nvidia-legacy", "variable", 2, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu-index", 2, "nvidia-legacy", "variable", 2, marks=NIGHTLY),
    pytest.param("nvidia.com/gpu.shared", 1, "nvidia-legacy", "variable", 1, marks=NIGHTLY),
    pytest.param("nvidia.com/mig-1g.18gb", 2, "nvidia-legacy", "variable", 2, marks=DAILY),
]


@pytest.mark.cluster
@pytest.mark.parametrize(("resource", "count", "runtime", "strategy", "usable"), STRATEGIES)
def test_whatever_the_way_that_gpus_come_jobs_have_them(
    lab: Lab, owner: str, resource: str, count: int, runtime: str | None, strategy: str, usable: int
) -> None:
    skip_without_start(lab, resource)
    with gpu_pod(lab, f"e2e-{owner}-way", resource, count, runtime) as name, ExitStack() as cleanup:
        pod = Pool(lab, name, cleanup)
        found = told(pod)
        assert (found["strategy"], found["problem"], len(found["usable"])) == (strategy, None, usable)
        seen = look(pod, request_gpus=str(usable))
        assert seen["CUDA_VISIBLE_DEVICES"] == [",".join(found["usable"])]
        assert seen["node"]
        assert pod.of_slot("GPUs") == str(usable)
        assert not pod.faults(120)


@pytest.mark.cluster
@pytest.mark.xdist_group("gpus that nobody promised")
def test_devices_that_nobody_promised_are_told_of_and_given_to_no_job(lab: Lab, owner: str) -> None:
    name = f"e2e-{owner}-lie"
    with gpu_pod(lab, name, "nvidia.com/gpu-broken", 2, "nvidia-legacy"), ExitStack() as cleanup:
        lying = Pool(lab, name, cleanup)
        found = told(lying)
        assert "without a request" in found["problem"] or "does not see" in found["problem"]
        assert set(found["usable"]) < set(found["observed"]) | set(found["expected"])
        assert set(found["usable"]) <= set(found["expected"])
        assert "GPUs: " in lying.inside("k8spilot status || true")
        selector = f"involvedObject.name={name},reason=GpuMismatch"

        def event() -> str:
            query = ("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector, "-o", "json")
            return "".join(one["message"] for one in json.loads(lab.kubectl(*query))["items"])

        assert found["problem"] in until(event, "the Event is there", 30)


def test_a_pod_without_gpus_says_nothing_of_them(pool: Pool) -> None:
    assert pool.of_slot("GPUs") == "0"
    assert told(pool)["problem"] is None
    assert "GPUs" not in pool.inside("k8spilot status || true")
    assert pool.inside("k8spilot gpu probe").startswith("strategy   none")


def test_the_probe_runs_by_hand_in_the_payload_container_too(gpus: Pool) -> None:
    until(lambda: gpus.of_slot("State") == "Unclaimed", "the slot is free", 60)
    until(gpus.has_idle_image, "the idle image is back", 60)
    until(lambda: "idle" in gpus.inside("k8spilot status || true"), "no job is there", 60)
    command = ("k8spilot", "gpu", "probe", "--limit", "nvidia.com/gpu-cdi=2")
    text = gpus.lab.kubectl("exec", "-n", PILOT_NAMESPACE, gpus.pod, "-c", "payload", "--", *command)
    assert text.startswith("strategy   cdi")
    assert text.endswith("problem    none\n")


def test_discovery_is_a_small_part_of_the_start_of_a_pod(gpus: Pool) -> None:
    log = ("logs", "-n", PILOT_NAMESPACE, gpus.pod, "-c", "pilot", "--limit-bytes=4000000")
    if " Found in " not in (text := gpus.lab.kubectl(*log)):
        text = gpus.lab.kubectl(*log, "--previous")
    began, joined = (
        datetime.fromisoformat(next(line for line in text.splitlines() if words in line).split()[0])
        for words in ("engine has been started", "In the pool as")
    )
    found = float(text.partition(" Found in ")[2].split()[0])
    assert 0 < told(gpus)["evidence"]["seconds"] <= found < (joined - began).total_seconds() / 2
