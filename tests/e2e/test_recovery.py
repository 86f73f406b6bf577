"""Processes of the pilot die under a job: it runs again and ends right, and the slot stays."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from lab import pilot
from lab.api import Lab
from lab.faulty import BLOBS, Fault, FaultyRegistry
from lab.jobs import BAD_NEWS, Jobs, wait_in_pool
from lab.oci import Pusher
from lab.patience import scaled
from lab.pilot import SUPERVISOR
from tests.e2e.pool import Images, Pool, result, slot_takes_a_job_of_bob, until

SLOW = """
grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD && { echo first; sleep 600; }
echo again; ls /tmp; exit 7
"""
"""A job that does not come to its end the first time."""

AGAIN_SECONDS = 150.0
"""HTCondor's own 20 s of asking for the container, its transfer of files, and a negotiation if it needs one."""
TAKES_OTHERS_SECONDS = 30.0
"""From the start of a pilot container, by the kubelet's clock, to the execution of a job, by the event log's."""
BUSY = 3
"""Factor by which a pilot's programs start more slowly on a node of two cores that has ten other pods to start."""


def kill(pool: Pool, pattern: str, number: str = "KILL") -> None:
    """Send a signal to the process of the pilot container whose command line has `pattern`; the container may end."""
    pool.ends_its_container(f"pkill -{number} -U $(id -u) -f -o -- {pattern}")


def kill_engine(pool: Pool, number: str = "KILL", otherwise: str = "false") -> None:
    """Send a signal to the engine."""
    pool.beside_the_engine(f"pkill -{number} -U $(id -u) -f -o -- k8spilot[.]engine || {otherwise}")


def restarts(pool: Pool) -> int:
    """Return the number of restarts of the pilot container."""
    path = "jsonpath={.status.containerStatuses[0].restartCount}"
    return int(pool.lab.kubectl("get", "pod", pool.pod, "-n", pool.lab.namespace, "-o", path))


def started(pool: Pool) -> float:
    """When the kubelet has started the pilot container last: whole seconds since the epoch."""
    path = "jsonpath={.status.containerStatuses[0].state.running.startedAt}"
    text = pool.lab.kubectl("get", "pod", pool.pod, "-n", pool.lab.namespace, "-o", path)
    return datetime.fromisoformat(text).timestamp()


def runs(jobs: Jobs, pool: Pool) -> None:
    """Wait until the job's first run is under way."""
    jobs.wait("ExecuteEvent")
    until(lambda: any("sleep 600" in line for line in pool.processes()), "the job sleeps")


def ended_the_second_time(jobs: Jobs, seconds: float = AGAIN_SECONDS) -> None:
    """Wait for the job's right end."""
    event = jobs.ended(timeout=seconds, ignore=BAD_NEWS - {"JobHeldEvent", "JobAbortedEvent"})
    assert event.attributes["ReturnValue"] == 7
    assert jobs.files()["out.0"] == b"again\n"


@pytest.mark.cluster
def test_an_engine_that_is_killed_under_a_job_costs_a_new_start_of_the_job(pool: Pool) -> None:
    before = restarts(pool)
    jobs = pool.shell(SLOW)
    runs(jobs, pool)
    with pool.kills(pool.first_process(), itself=False) as killed:
        began = time.time()
        kill_engine(pool)
    assert killed.at - began < scaled(15)
    ended_the_second_time(jobs)
    assert jobs.events[-1].at - began < scaled(AGAIN_SECONDS)
    assert restarts(pool) == before
    assert "JobTerminatedEvent" not in [event.kind for event in jobs.events[:-1]]


@pytest.mark.cluster
@pytest.mark.quick
def test_an_engine_that_is_killed_between_jobs_costs_nothing(pool: Pool) -> None:
    assert pool.shell("exit 1").ended().attributes["ReturnValue"] == 1
    kill_engine(pool)
    assert pool.shell("exit 2").ended().attributes["ReturnValue"] == 2


def test_an_engine_that_is_killed_again_and_again_holds_no_job(pool: Pool) -> None:
    jobs = pool.shell("exit 3", count=3)
    for _ in range(4):
        time.sleep(1.3)
        kill_engine(pool, otherwise="true")
    for proc in range(3):
        event = jobs.ended(proc, timeout=120, ignore=BAD_NEWS - {"JobHeldEvent", "JobAbortedEvent"})
        assert event.attributes["ReturnValue"] == 3


def test_an_engine_that_is_killed_while_it_pulls_an_image_costs_a_new_start_of_the_job(
    pool: Pool, faulty: FaultyRegistry, pusher: Pusher
) -> None:
    image = Images(pusher, faulty).fresh()
    node = pool.lab.settings.runtime_agent
    faulty.fails(Fault(BLOBS, hang=True, agent=node))
    jobs = pool.submit({"container_image": image, "executable": "/bin/true"})
    until(lambda: faulty.asked(BLOBS, node), "the image is pulled", 60)
    kill_engine(pool)
    faulty.is_well()
    assert jobs.ended(timeout=90, ignore=BAD_NEWS - {"JobHeldEvent"}).attributes["TerminatedNormally"]


@pytest.mark.landing
def test_a_job_that_has_stopped_payload_init_does_not_outlive_the_engine_either(pool: Pool) -> None:
    stop = "for one in /proc/[0-9]*; do grep -qs payload-init $one/comm && kill -STOP ${one#/proc/}; done"
    jobs = pool.shell(f"grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD && {{ {stop}; }}\n{SLOW}")
    runs(jobs, pool)
    kill_engine(pool)
    until(lambda: not any("sleep 600" in line for line in pool.processes()), "the job is ended", 20)
    ended_the_second_time(jobs)


@pytest.mark.landing
@pytest.mark.parametrize("daemon", ["condor_startd", "condor_starter"])
def test_a_daemon_of_htcondors_that_is_killed_ends_by_htcondors_own_rules(pool: Pool, daemon: str) -> None:
    jobs = pool.shell(SLOW, job_lease_duration="60")
    runs(jobs, pool)
    kill(pool, daemon)
    ended_the_second_time(jobs, 150)


@pytest.mark.cluster
def test_a_pilot_container_that_is_killed_as_a_whole_is_fit_again_in_the_same_pod(pool: Pool) -> None:
    jobs = pool.shell(SLOW, job_lease_duration="60")
    runs(jobs, pool)
    before, startd = restarts(pool), pool.of_slot("DaemonStartTime")
    kill(pool, SUPERVISOR)
    # On CRI-O, the first HTCondor lives until then.
    until(lambda: pool.has_another_startd(startd), "HTCondor has started again", 60)
    bobs = pool.shell("echo fine", user="bob")
    assert result(bobs, timeout=120).stdout == b"fine\n"
    assert restarts(pool) == before + 1
    assert bobs.wait("ExecuteEvent").at - started(pool) < scaled(TAKES_OTHERS_SECONDS * BUSY)
    ended_the_second_time(jobs, 150)


class TestHungEngine:
    """An engine that lives and does nothing."""

    @pytest.fixture
    def pod(self, lab: Lab, owner: str) -> Iterator[str]:
        """A pilot whose kubelet asks more often than it usually does."""
        name = f"e2e-{owner}-hangs"
        probe = {"periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 3}
        path = "/spec/containers/0/livenessProbe/{}"
        faster = pilot.change(*({"op": "replace", "path": path.format(k), "value": v} for k, v in probe.items()))
        pilot.deploy(lab, name, overlay={"patches": [faster]})
        wait_in_pool(lab, name)
        # Until it has seen the pilot start the kubelet does not ask whether it lives.
        lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", lab.namespace, "--timeout=60s")
        yield name
        pilot.discard(lab, name)

    @pytest.mark.landing
    def test_it_is_ended_by_the_kubelet_and_the_slot_is_fit_again(self, pool: Pool) -> None:
        kill(pool, "k8spilot[.]engine", "STOP")
        until(lambda: restarts(pool) == 1, "the kubelet has started the pilot again", 90)
        slot_takes_a_job_of_bob(pool)
