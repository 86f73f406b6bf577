"""A pilot pod with one partitionable slot: each job gets the CPUs and the memory that it requests, and no more."""

import json
from collections.abc import Iterator

import pytest
import yaml

from lab import pilot
from lab.api import Lab
from lab.patience import scaled
from tests.e2e.partitionable import (
    CGROUP,
    CONTAINERS,
    CPUS,
    MEMORY_MB,
    deploy,
    running,
    skip_where_slots_are_equal,
    slots,
)
from tests.e2e.pool import Pool, ads, result, until

AGAIN_SECONDS = 120.0


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with a partitionable slot."""
    skip_where_slots_are_equal(lab)
    name = f"e2e-{owner}-sizes"
    deploy(lab, name)
    yield name
    pilot.discard(lab, name)


def limits(pool: Pool) -> dict[str, tuple[str, str]]:
    """Limits of memory and CPU of the payload containers in the pod's specification."""
    pod = json.loads(pool.lab.kubectl("get", "pod", pool.pod, "-n", pool.lab.namespace, "-o", "json"))
    found = {one["name"]: one["resources"]["limits"] for one in pod["spec"]["initContainers"]}
    return {name: (one["memory"], one["cpu"]) for name, one in found.items() if name.startswith("payload-")}


@pytest.mark.cluster
def test_htcondor_the_pod_and_the_cgroup_agree_on_the_size_of_each_job(pool: Pool) -> None:
    asked = [(1, 128), (2, 256), (3, 384), (2, 256)]
    submitted = [
        pool.shell(
            f"{CGROUP}\nwhile [ ! -e go ]; do sleep 0.1; done",
            user=user,
            request_cpus=str(cpus),
            request_memory=f"{memory}M",
        )
        for user, (cpus, memory) in zip(("alice", "bob", "alice", "bob"), asked, strict=True)
    ]
    until(lambda: len(running(pool)) == len(asked), "all jobs have a dynamic slot", 90)
    promised = running(pool)
    assert sorted((ad["Cpus"], ad["Memory"]) for ad in promised.values()) == sorted(asked)
    expected = {
        name.replace("slot1_", "payload-"): (f"{ad['Memory']}Mi", str(ad["Cpus"])) for name, ad in promised.items()
    }
    until(lambda: expected.items() <= limits(pool).items(), "each container has the size of its job", 90)
    for one in submitted:
        one.wait("ExecuteEvent")
    pool.inside("for folder in /var/lib/condor/execute/*/dir_*/scratch; do touch $folder/go; done")
    for one, (cpus, memory) in zip(submitted, asked, strict=True):
        done = result(one)
        assert done.text.split()[:2] == [str(memory), str(cpus * 1000)]
    assert len({result(one).text.split()[2] for one in submitted}) == len(asked)


@pytest.mark.landing
def test_one_job_can_have_the_whole_pod_and_gives_it_back(pool: Pool) -> None:
    whole = pool.shell(CGROUP, request_cpus=str(CPUS), request_memory=f"{MEMORY_MB}M")
    assert result(whole).text.split()[:2] == [str(MEMORY_MB), str(CPUS * 1000)]
    until(lambda: {one[0] for one in limits(pool).values()} == {"32Mi"}, "all containers are small again", 60)
    parts = pool.shell(CGROUP, request_cpus="2", request_memory="256M", count=CONTAINERS)
    assert {tuple(result(parts, number).text.split()[:2]) for number in range(CONTAINERS)} == {("256", "2000")}


def test_there_are_no_more_jobs_at_a_time_than_payload_containers(pool: Pool) -> None:
    submitted = pool.shell("date +%s; sleep 5; date +%s", request_cpus="1", request_memory="64M", count=CONTAINERS + 3)
    spans = [tuple(map(int, result(submitted, number).text.split())) for number in range(CONTAINERS + 3)]
    most = max(sum(1 for began, ended in spans if began <= at < ended) for at, _ in spans)
    assert most <= CONTAINERS
    assert {int(ad["NumJobStarts"]) for ad in ads(submitted)} == {1}


@pytest.mark.cluster
def test_a_job_that_needs_more_memory_than_it_requested_is_held_and_its_neighbours_are_not(pool: Pool) -> None:
    neighbours = pool.shell(
        f"sleep {scaled(15):.0f}; echo done", user="bob", request_memory="128M", count=CONTAINERS - 1
    )
    until(lambda: len(running(pool)) == CONTAINERS - 1, "the neighbours run", 90)
    greedy = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c; sleep 5"
    held = pool.shell(greedy, request_memory="128M", request_disk="50M").held().attributes
    assert (held["HoldReasonCode"], held["HoldReasonSubCode"]) == (34, 102), held
    for number in range(CONTAINERS - 1):
        assert result(neighbours, number).stdout == b"done\n"
    assert {int(ad["NumJobStarts"]) for ad in ads(neighbours)} == {1}


@pytest.mark.landing
@pytest.mark.timeout(400)
def test_after_the_accepting_hours_the_pilot_ends_when_its_last_job_has_ended(lab: Lab, owner: str, pool: Pool) -> None:
    name = f"e2e-{owner}-sizes-retire"
    deploy(lab, name, ACCEPT_JOBS_FOR_HOURS="0.025")
    ending = pool.of_pod(name)
    submitted = ending.shell("sleep 120; echo done", request_memory="128M", count=2)
    for number in range(2):
        assert result(submitted, number, timeout=240).stdout == b"done\n"
    assert {int(ad["NumJobStarts"]) for ad in ads(submitted)} == {1}
    until(lambda: not pilot.runs(lab, name), "the pilot ends when it has no job", AGAIN_SECONDS)
    pilot.discard(lab, name)


def test_where_containers_cannot_be_resized_there_are_equal_slots_and_the_pilot_says_why(
    lab: Lab, owner: str, pool: Pool
) -> None:
    name = f"e2e-{owner}-sizes-equal"
    deploy(lab, name, rewrite=without_resources)
    equal = pool.of_pod(name)
    names = [f"slot{number}" for number in range(1, CONTAINERS + 1)]
    until(lambda: sorted(slots(equal)) == names, "the pool has all slots")
    done = result(equal.shell(CGROUP, request_memory="128M"))
    assert done.text.split()[:2] == [str(MEMORY_MB // CONTAINERS), str(CPUS // CONTAINERS * 1000)]
    reason = "slots of equal size instead of a partitionable slot: the pod has no resources of its own"
    assert reason in pilot.inside(lab, name, "k8spilot status")
    events = lab.kubectl("get", "events", "-n", lab.namespace, "--field-selector", f"involvedObject.name={name}")
    assert "EqualSlots" in events
    assert reason in events
    pilot.discard(lab, name)


def without_resources(manifest: str) -> str:
    """The manifest as Kubernetes before 1.34 takes it, which does not know the resources of a whole pod."""
    documents = list(yaml.safe_load_all(manifest))
    for item in documents:
        if item["kind"] == "Pod":
            del item["spec"]["resources"]
    return yaml.safe_dump_all(documents)
