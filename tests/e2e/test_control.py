"""Jobs that are removed, held, evicted, or that kill what carries them."""

import pytest

from lab import pilot
from lab.jobs import BAD_NEWS, Jobs
from lab.streams import Stream
from tests.e2e.pool import MATCHED_SECONDS, Pool, result, slot_takes_a_job_of_bob, until

CREATE_PROCESS_HOLD = 6
"""CONDOR_HOLD_CODE::FailedToCreateProcess: HTCondor's code for an error that docker tells of a container."""

CROWD = """
trap '' TERM
for i in 1 2 3; do setsid sh -c 'trap "" TERM; while :; do sleep 300; done' & done
echo ready
while :; do sleep 300; done
"""
"""A job that ignores SIGTERM, and so do the processes that it starts in sessions of their own."""

AGAIN = """
case "$(grep -i '^NumJobStarts' $_CONDOR_JOB_AD)" in
    *' 0'|'') {first} ;;
esac
echo second run
"""
"""A job that does something else when it is started first."""


def _running(pool: Pool, jobs: Jobs, processes: int = 1) -> str:
    """Wait until so many processes of the job sleep; return which container they are in."""
    jobs.wait("ExecuteEvent")
    until(lambda: len([one for one in pool.processes() if "sleep" in one]) >= processes, "they run", MATCHED_SECONDS)
    return until(pool.first_process, "their container is seen")


@pytest.mark.cluster
@pytest.mark.quick
def test_condor_rm_ends_all_of_a_job_and_frees_the_slot(pool: Pool) -> None:
    jobs = pool.shell("for i in 1 2 3; do setsid sleep 300 & done; exec sleep 301")
    container = _running(pool, jobs, 4)
    with pool.kills(container):
        jobs.command("condor_rm")
    jobs.wait("JobAbortedEvent", ignore=BAD_NEWS)
    assert result(pool.shell("echo next", user="bob")).stdout == b"next\n"


@pytest.mark.quick
def test_condor_hold_ends_a_job_and_condor_release_runs_it_again(pool: Pool) -> None:
    jobs = pool.shell(AGAIN.format(first="exec sleep 300"))
    container = _running(pool, jobs)
    with pool.kills(container):
        jobs.command("condor_hold", "-reason", "a look at it")
    assert "a look at it" in jobs.held().attributes["HoldReason"]
    jobs.command("condor_release")
    jobs.ended(ignore=BAD_NEWS)
    assert jobs.files()["out.0"] == b"second run\n"


def test_sigterm_reaches_a_job_that_is_removed(pool: Pool) -> None:
    script = "trap 'echo saved >> state; sleep 1; exit 0' TERM; echo ready > state; while :; do sleep 0.1; done"
    jobs = pool.shell(script)
    _running(pool, jobs)
    state = until(
        lambda: pool.inside("ls /var/lib/condor/execute/slot/dir_*/scratch/state 2>/dev/null || true").strip(),
        "the job has written its state",
    )
    with Stream.of_pilot_files(pool.lab, pool.pod, state) as follow:
        until(lambda: "ready" in follow.lines(), "the job's state is seen")
        jobs.command("condor_rm")
        until(lambda: "saved" in follow.lines(), "the job has had time to save its state")


@pytest.mark.cluster
def test_a_job_that_kills_its_payload_init_is_not_taken_for_ended_and_held_the_second_time(pool: Pool) -> None:
    jobs = pool.shell("kill -9 -1; sleep 300")
    facts = jobs.held(timeout=150).attributes
    assert facts["HoldReasonCode"] == CREATE_PROCESS_HOLD
    assert "the job has again ended its own container's first process by signal 9" in facts["HoldReason"]
    assert len([one for one in jobs.events if one.kind == "ExecuteEvent"]) == 2
    slot_takes_a_job_of_bob(pool)


def test_a_job_whose_pod_is_deleted_runs_again(pool: Pool) -> None:
    name = f"{pool.pod}-doomed"
    pilot.deploy(pool.lab, name)
    try:
        doomed = pool.of_pod(name)
        jobs = doomed.shell(AGAIN.format(first="exec sleep 300"))
        _running(doomed, jobs)
        pilot.delete(pool.lab, name)
        jobs.wait("JobEvictedEvent", timeout=30)
        pilot.deploy(pool.lab, name)  # another pod, of the same name
        jobs.ended(ignore=BAD_NEWS)
        assert jobs.files()["out.0"] == b"second run\n"
    finally:
        pilot.discard(pool.lab, name)


def test_a_job_that_ignores_sigterm_is_killed_in_the_end(pool: Pool) -> None:
    jobs = pool.shell(CROWD, job_max_vacate_time="3")
    container = _running(pool, jobs, 4)
    with pool.kills(container):
        jobs.command("condor_rm")
    assert result(pool.shell("echo next", user="bob"), timeout=60).stdout == b"next\n"
