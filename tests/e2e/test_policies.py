"""Policies of jobs: limits of time, periodic and on-exit expressions, retries, a time to begin at."""

import time

import pytest

from lab.jobs import BAD_NEWS, Jobs
from tests.e2e.pool import WAITS, Pool, ads, until

JOB_DURATION, EXECUTE_DURATION, POLICY = 46, 47, 3
"""Hold codes: CONDOR_HOLD_CODE::JobDurationExceeded, JobExecuteExceeded, JobPolicy."""

ONCE = f"""
if grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD; then {{first}}; fi
{WAITS}echo again
"""


def _starts(jobs: Jobs, proc: int) -> int:
    return sum(event.kind == "ExecuteEvent" and event.proc == proc for event in jobs.events)


def test_a_job_that_runs_longer_than_it_may_is_held(pool: Pool) -> None:
    execute = pool.shell("exec sleep 60", allowed_execute_duration="2")
    job = pool.shell("exec sleep 60", allowed_job_duration="2")
    facts = execute.held().attributes
    assert (facts["HoldReasonCode"], "execute duration" in facts["HoldReason"]) == (EXECUTE_DURATION, True), facts
    facts = job.held().attributes
    assert (facts["HoldReasonCode"], "job duration" in facts["HoldReason"]) == (JOB_DURATION, True), facts
    until(lambda: not pool.processes(), "nothing of them runs on")


@pytest.mark.landing
def test_periodic_expressions_hold_release_vacate_and_remove_a_running_job(pool: Pool) -> None:
    # HTCondor looks at these before the job runs, too.
    first = "NumJobStarts == 1 && JobCurrentStartExecutingDate >= JobCurrentStartDate && JobStatus == 2"
    jobs = pool.shell(
        ONCE.format(first="exec sleep 60"),
        count=3,
        periodic_hold=f"ProcId == 0 && {first}",
        periodic_hold_reason='"a policy of its own"',
        periodic_hold_subcode="42",
        periodic_release="HoldReasonSubCode == 42",
        periodic_vacate=f"ProcId == 1 && {first}",
        periodic_remove=f"ProcId == 2 && {first}",
    )
    facts = jobs.held(0).attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (POLICY, 42)
    assert "a policy of its own" in facts["HoldReason"]
    jobs.ended(0, ignore=BAD_NEWS)
    jobs.wait("JobEvictedEvent", proc=1, ignore=BAD_NEWS)
    jobs.ended(1, ignore=BAD_NEWS)
    jobs.wait("JobAbortedEvent", proc=2, ignore=BAD_NEWS)
    assert [_starts(jobs, proc) for proc in range(3)] == [2, 2, 1]
    files = jobs.files()
    assert (files["out.0"], files["out.1"]) == (b"again\n", b"again\n")
    assert not [line for line in pool.processes() if "sleep 60" in line]


def test_on_exit_expressions_see_the_exit_code_and_the_signal(pool: Pool) -> None:
    jobs = pool.shell(
        ONCE.format(first=f"{WAITS}[ $1 = 0 ] && exit 3; kill -9 $$"),
        count=2,
        on_exit_hold="ExitBySignal == False && ExitCode =?= 3",
        on_exit_hold_reason='"so it ended"',
        on_exit_remove="ExitBySignal == False || ExitSignal != 9",
    )
    facts = jobs.held(0).attributes
    assert (facts["HoldReasonCode"], "so it ended" in facts["HoldReason"]) == (POLICY, True), facts
    assert jobs.wait("JobTerminatedEvent", proc=1, ignore=BAD_NEWS).attributes["ReturnValue"] == 0
    assert [_starts(jobs, proc) for proc in range(2)] == [1, 2]


@pytest.mark.landing
def test_a_failed_job_is_tried_again_as_often_as_it_asks_for(pool: Pool) -> None:
    codes = [5, 7, 9, 255]
    jobs = pool.shell(
        f"{WAITS}set -- $1 {' '.join(map(str, codes))}; shift $(($1 + 1)); exit $1",
        count=len(codes),
        max_retries="1",
        success_exit_code="7",
        retry_until="9",
    )
    for proc in range(len(codes)):
        jobs.ended(proc, ignore=BAD_NEWS)
    told = [(ad["NumJobStarts"], ad.get("ExitCode"), ad.get("ExitSignal")) for ad in ads(jobs)]
    # HTCondor's docker universe cannot carry 255: see test_exit_status.py.
    assert told == [(2, 5, None), (1, 7, None), (1, 9, None), (2, 128, None)]


def test_a_deferred_job_begins_at_its_time(pool: Pool) -> None:
    begin = int(time.time()) + 10
    jobs = pool.shell("date +%s", deferral_time=str(begin), deferral_window="120")
    jobs.ended()
    began = int(jobs.files()["out.0"])
    assert begin <= began
