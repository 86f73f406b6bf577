"""A pilot pod with a partitionable slot that is drained or deleted, or whose engine dies; claims of several jobs."""

import signal
import time
from collections.abc import Iterator

import pytest

from lab import pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS, Jobs, submit
from lab.pod_processes import hit, uid_of
from lab.settings import CENTRAL_MANAGER, POOL_NAMESPACE
from tests.e2e.partitionable import CGROUP, CONTAINERS, CPUS, MEMORY_MB, deploy, running, slots
from tests.e2e.pool import MATCHED_SECONDS, WAITS, Pool, ads, is_left_alone, result, until
from tests.e2e.size_looks import Containers

pytestmark = pytest.mark.timeout(600)

ENGINE = r"k8spilot\.engine"
RESUMED_SECONDS = 150.0
"""HTCondor's startd looks once a minute whether a drained slot is to take jobs again."""
SMALL = {"request_cpus": "2", "request_memory": "128M", "request_disk": "50M"}


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with a partitionable slot."""
    name = f"e2e-{owner}-ends"
    deploy(lab, name)
    yield name
    pilot.discard(lab, name)


def drain(pool: Pool, *options: str) -> None:
    """Drain the pod's slots, or take that back, as an administrator of the pool."""
    machine = pool.of_slot("Machine").split()[0]
    where = ("exec", "-n", POOL_NAMESPACE, CENTRAL_MANAGER, "--")
    pool.lab.kubectl(*where, "condor_drain", *options, machine)


def is_whole(pool: Pool) -> bool:
    """Whether the pod has one slot only, with all of its CPUs and memory."""
    return [(ad["Cpus"], ad["Memory"]) for ad in slots(pool).values()] == [(CPUS, MEMORY_MB)]


def until_processes_run(pool: Pool, count: int) -> None:
    """Wait until so many jobs have processes in the pod."""
    containers = Containers(uid_of(pool.lab, pool.pod))
    until(lambda: len(containers.processes()) == count, f"{count} jobs run", MATCHED_SECONDS)


def small_jobs(pool: Pool, script: str, count: int = CONTAINERS) -> Jobs:
    """Submit jobs as many of which fit into the pod as it has payload containers."""
    return pool.submit(
        {"executable": "job.sh", "transfer_executable": "true", **SMALL},
        files={"job.sh": f"#!/bin/sh\n{script}\n"},
        count=count,
    )


def starts(submitted: Jobs) -> list[int]:
    """Return the number of starts of each job."""
    return [int(ad["NumJobStarts"]) for ad in ads(submitted)]


@pytest.mark.landing
def test_consecutive_jobs_of_a_cluster_share_claims(pool: Pool) -> None:
    count = 3 * CONTAINERS
    submitted = small_jobs(pool, "sleep 1; echo done", count)
    for number in range(count):
        assert result(submitted, number).stdout == b"done\n"
    claims = {ad["LastPublicClaimId"] for ad in ads(submitted)}
    assert len(claims) <= count // 2, "most jobs were started without a match of their own"
    assert starts(submitted) == [1] * count


@pytest.mark.landing
def test_a_drained_pod_gets_whole_again_and_runs_the_job_that_needs_all_of_it(pool: Pool) -> None:
    small = small_jobs(pool, "sleep 20; echo done")
    until_processes_run(pool, CONTAINERS)
    whole = pool.shell(CGROUP, user="bob", request_cpus=str(CPUS), request_memory=f"{MEMORY_MB}M", request_disk="50M")
    drain(pool, "-graceful", "-resume-on-completion", "-reason", "as condor_defrag does it")
    until(lambda: is_whole(pool), "the pod is whole", MATCHED_SECONDS)
    sizes = result(whole, timeout=RESUMED_SECONDS + MATCHED_SECONDS).text.split()[:2]
    assert sizes == [str(MEMORY_MB), str(CPUS * 1000)]
    for number in range(CONTAINERS):
        done = small.ended(number, RESUMED_SECONDS + MATCHED_SECONDS, BAD_NEWS)
        assert done.attributes["ReturnValue"] == 0
    assert max(starts(small)) <= 2


def test_a_drained_pod_starts_no_job_until_draining_is_cancelled(pool: Pool) -> None:
    until(lambda: is_whole(pool), "the pod is whole", MATCHED_SECONDS)
    drain(pool, "-graceful")
    until(lambda: pool.of_slot("State") == "Drained", "the pool shows that the slot is drained", MATCHED_SECONDS)
    submitted = small_jobs(pool, "echo done")
    is_left_alone(submitted)
    assert not running(pool)
    assert "ExecuteEvent" not in {event.kind for event in submitted.look()}
    drain(pool, "-cancel")
    for number in range(CONTAINERS):
        assert result(submitted, number).stdout == b"done\n"


@pytest.mark.landing
def test_the_death_of_the_engine_costs_each_running_job_one_new_start_and_no_job_its_result(pool: Pool) -> None:
    submitted = small_jobs(pool, "sleep 25; echo done; exit 7")
    until_processes_run(pool, CONTAINERS)
    hit(pool.lab, pool.pod, ENGINE, signal.SIGKILL)
    for number in range(CONTAINERS):
        done = submitted.ended(number, ignore=BAD_NEWS)
        assert done.attributes["ReturnValue"] == 7
    assert {submitted.files()[f"out.{number}"] for number in range(CONTAINERS)} == {b"done\n"}
    assert starts(submitted) == [2] * CONTAINERS


@pytest.mark.landing
def test_jobs_of_a_pod_that_is_deleted_leave_it_within_the_grace_period_and_complete_elsewhere(
    lab: Lab, owner: str, pool: Pool
) -> None:
    name = f"e2e-{owner}-ends-here"
    deploy(lab, name)
    here = pool.of_pod(name)
    where = 'TARGET.K8SPodName == "{}"'.format
    commands = {
        "container_image": pool.image("busybox"),
        "executable": "job.sh",
        "transfer_executable": "true",
        "transfer_output_files": '""',
        "requirements": f"ifThenElse((NumJobStarts ?: 0) == 0, {where(name)}, {where(pool.pod)})",
        **SMALL,
    }
    script = f'#!/bin/sh\n! grep -q "{name}" "$_CONDOR_MACHINE_AD" || sleep 600\n{WAITS}echo elsewhere\n'
    with submit(lab, "alice", commands, files={"job.sh": script}, count=CONTAINERS) as submitted:
        leave_and_complete(here, submitted)


def leave_and_complete(here: Pool, submitted: Jobs) -> None:
    """Delete the pod that runs the jobs; see when they leave it, and what becomes of them."""
    until_processes_run(here, CONTAINERS)
    grace = int(here.status()["spec"]["terminationGracePeriodSeconds"])
    deleted = time.time()
    pilot.delete(here.lab, here.pod)
    assert time.time() - deleted < grace
    for number in range(CONTAINERS):
        evicted = submitted.wait("JobEvictedEvent", proc=number, ignore=BAD_NEWS)
        assert evicted.at - deleted < grace
        assert submitted.ended(number, ignore=BAD_NEWS).attributes["ReturnValue"] == 0
    assert {submitted.files()[f"out.{number}"] for number in range(CONTAINERS)} == {b"elsewhere\n"}
    assert starts(submitted) == [2] * CONTAINERS
