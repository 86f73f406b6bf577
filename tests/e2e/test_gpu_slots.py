"""A pilot pod with several payload containers, some of which have GPUs: each job gets those of its container."""

import json
from collections.abc import Callable, Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import Jobs
from tests.e2e.partitionable import skip_where_slots_are_equal, slots
from tests.e2e.pool import Pool, result, until

CONTAINERS = 4
GPU_CONTAINERS = 2
GPUS = 2
RESOURCES = {
    "limits": {"cpu": "4", "memory": "640Mi", "ephemeral-storage": "5200Mi", "nvidia.com/gpu-cdi": str(GPUS)},
    "requests": {"cpu": "200m", "memory": "640Mi", "ephemeral-storage": "400Mi"},
}
LOOK = """
echo uid=$(id -u)
env | grep -E '^CUDA_VISIBLE_DEVICES='
ls /dev | grep '^nvidia[0-9]' | sed 's/^/node=/'
"""
STATUS = "k8spilot status --json || true"
SLOT = "Name,State,GPUs,AssignedGPUs,Cpus,Memory,SlotBrokenReason"


def deploy(lab: Lab, name: str, *, rewrite: Callable[[str], str] = str) -> None:
    """Deploy a pilot with a partitionable slot for two payload containers, and two more, each with a GPU."""
    resources = pilot.change({"op": "replace", "path": "/spec/initContainers/1/resources", "value": RESOURCES})
    known = {"K8SPILOT_IDLE_AFTER_SECONDS": "1"}
    changes = {"patches": [resources]}
    shares = pilot.Shares(gpu_containers=GPU_CONTAINERS)
    pilot.deploy(lab, name, known, changes, slots=CONTAINERS, shares=shares, rewrite=rewrite)
    jobs.wait_in_pool(lab, name)


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """Name of a pilot with slots that have GPUs and slots that have none."""
    skip_where_slots_are_equal(lab)
    name = f"e2e-{owner}-gpu-slots"
    deploy(lab, name)
    yield name
    pilot.discard(lab, name)


def gpus_of(pool: Pool) -> dict[str, list[str]]:
    """The usable GPUs of each payload container, by its number."""
    containers = json.loads(pool.inside(STATUS))["gpus"]["containers"]
    return {number: found["usable"] for number, found in containers.items()}


def seen(submitted: Jobs) -> dict[str, list[str]]:
    """Return the values that a job printed of its user and its GPUs, by name."""
    found: dict[str, list[str]] = {}
    for line in result(submitted, timeout=90).text.splitlines():
        name, _, value = line.partition("=")
        found.setdefault(name, []).append(value)
    return found


def test_each_payload_container_with_a_gpu_has_a_slot_of_its_own_with_that_gpu(pool: Pool) -> None:
    until(lambda: len(slots(pool)) == 3, "the slots are in the pool", 60)
    found, containers = slots(pool, SLOT), gpus_of(pool)
    assert sorted(found) == ["slot1", "slot2", "slot3"]
    assert [found[name]["GPUs"] for name in sorted(found)] == [0, 1, 1]
    assert (found["slot1"]["Cpus"], found["slot2"]["Cpus"], found["slot1"]["Memory"]) == (2, 1, 320)
    assert [len(containers[number]) for number in "1234"] == [0, 0, 1, 1]
    assert containers["3"][0].startswith(found["slot2"]["AssignedGPUs"])
    assert containers["4"][0].startswith(found["slot3"]["AssignedGPUs"])


def test_jobs_with_and_without_gpus_run_side_by_side_each_where_its_devices_are(pool: Pool) -> None:
    containers = gpus_of(pool)
    with_gpu = [pool.shell(f"{LOOK} sleep 20", request_gpus="1") for _ in range(GPU_CONTAINERS)]
    without = [pool.shell(f"{LOOK} sleep 20", user="bob", request_memory="64M") for _ in range(2)]
    found = [seen(one) for one in (*with_gpu, *without)]
    uids = [one["uid"][0] for one in found]
    assert sorted(uids[:2]) == ["64303", "64304"]
    assert sorted(uids[2:]) == ["64301", "64302"]
    for one in found[:2]:
        assert one["CUDA_VISIBLE_DEVICES"] == containers[one["uid"][0][-1]]
        assert len(one["node"]) == 1
    assert all(one["CUDA_VISIBLE_DEVICES"] == ["10000"] and "node" not in one for one in found[2:])


def test_a_job_without_gpus_waits_for_a_container_without_and_leaves_those_with_gpus_free(pool: Pool) -> None:
    running = [pool.shell("sleep 600", user="bob", request_memory="64M") for _ in range(2)]
    for one in running:
        one.wait("ExecuteEvent")
    waits = pool.shell("id -u", request_memory="64M")
    assert seen(pool.shell(LOOK, request_gpus="1"))["node"], "a job with a GPU comes after it, and runs at once"
    waits.look()
    assert [event.kind for event in waits.events] == ["SubmitEvent"]
    for one in running:
        one.command("condor_rm")
    assert result(waits, timeout=90).text in ("64301\n", "64302\n")


def test_two_gpus_of_two_containers_are_not_to_be_had_by_one_job(pool: Pool) -> None:
    stays = pool.shell("echo no", request_gpus="2")
    assert seen(pool.shell(LOOK, user="bob", request_gpus="1"))["node"]
    stays.look()
    assert [event.kind for event in stays.events] == ["SubmitEvent"]


@pytest.mark.timeout(300)
def test_a_container_without_its_gpu_has_a_broken_slot_and_the_others_take_jobs(
    lab: Lab, owner: str, pool: Pool
) -> None:
    def break_last(text: str) -> str:
        """Let the device plugin announce a GPU to the fourth payload container and give it none."""
        before, name, after = text.partition("name: payload-4\n")
        return before + name + after.replace("nvidia.com/gpu-cdi", "nvidia.com/gpu-broken")

    name = f"e2e-{owner}-gpu-broken"
    deploy(lab, name, rewrite=break_last)
    try:
        other = pool.of_pod(name)
        until(lambda: {"slot2", "slot3"} <= slots(other, SLOT).keys(), "the slots are in the pool", 60)
        assert slots(other, SLOT).get("slot3", {}).get("SlotBrokenReason"), slots(other, SLOT)
        assert "GPU" in " ".join(json.loads(other.inside(STATUS))["problems"])
    finally:
        pilot.delete(lab, name)
