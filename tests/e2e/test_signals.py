"""Signals to a job that is asked to end, and the fate of a job that does not end.

Jobs here write with `stream_output`: what they say is on the access point at once, also from jobs that are removed.
"""

import time
from typing import Any

import pytest

from lab.jobs import BAD_NEWS, Jobs
from lab.patience import scaled
from tests.e2e.pool import MATCHED_SECONDS, Pool, result, until

HEAR = """
for name in HUP INT QUIT USR1 USR2 TERM; do trap "echo heard $name; sleep 0.5; echo done; exit 0" $name; done
setsid sh -c 'for name in HUP INT USR1 USR2 TERM; do trap "echo a child" $name; done; while :; do sleep 0.1; done' &
echo ready
while :; do sleep 0.1; done
"""
"""A job that says which signal it got, needs half a second to save its work, and has a child."""

CROWD = """
tick='trap "" HUP INT TERM; while :; do echo tick; sleep 0.5; done'
setsid sh -c "$tick" &
(setsid sh -c "$tick" &)
perl -e 'use POSIX; fork && exit; POSIX::setsid(); fork && exit; exec "sh", "-c", @ARGV' "$tick"
trap 'echo asked' TERM
echo ready
while :; do sleep 0.1; done
"""
"""A job that goes on when it is asked to end, and so do its processes, in sessions of their own and daemonised."""

FIRST = "grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD || { echo again; exit 0; }\n"
"""Beginning of a script whose second run does nothing more."""

SUSPENDED = "7"
"""JobStatus."""

STATES = """
for folder in /proc/[0-9]*; do
    grep -q '^Uid:[[:space:]]65534' $folder/status 2>/dev/null || continue
    case "$(cat $folder/comm)" in payload-init) ;; *) sed 's/.*) //; s/ .*//' $folder/stat;; esac
done
"""
"""State letters of the payload's processes (proc_pid_stat(5)), but payload-init's."""


def _said(jobs: Jobs, word: str, proc: int = 0) -> str:
    """All that job `proc` has said once it has said `word`."""

    def look() -> str:
        text = jobs.files().get(f"out.{proc}", b"").decode()
        return text if word in text else ""

    return until(look, f"job {proc} has said {word!r}", MATCHED_SECONDS)


@pytest.mark.cluster
def test_each_tool_sends_the_signal_that_the_job_wants_and_gives_it_time_to_react(pool: Pool) -> None:
    # HTCondor's docker universe sends remove_kill_sig, if the job has one, whatever the reason (docker_proc.cpp).
    # Each runs once: a second run would empty its output, perhaps before that is looked at.
    once: Any = {"requirements": "MY.NumJobStarts == 0"}
    jobs = pool.shell(HEAR, count=2, stream_output="true", kill_sig="SIGUSR1", hold_kill_sig="SIGINT", **once)
    removed = pool.shell(HEAR, stream_output="true", kill_sig="SIGUSR1", remove_kill_sig="SIGUSR2")

    _said(jobs, "ready", 0)
    jobs.command("condor_hold", proc=0)
    jobs.held(0)
    assert _said(jobs, "done", 0) == "ready\nheard USR1\ndone\n"

    _said(jobs, "ready", 1)
    jobs.command("condor_vacate_job", proc=1)
    jobs.wait("JobEvictedEvent", proc=1, ignore=BAD_NEWS)
    assert _said(jobs, "done", 1).startswith("ready\nheard USR1\ndone\n")

    _said(removed, "ready")
    removed.command("condor_rm")
    removed.wait("JobAbortedEvent", ignore=BAD_NEWS)
    assert _said(removed, "done") == "ready\nheard USR2\ndone\n"


def test_a_job_that_does_not_end_is_killed_when_its_time_is_over_with_all_that_it_started(pool: Pool) -> None:
    # It is not to run again: its next container would kill what is left of it.
    once: Any = {"job_max_vacate_time": "3", "requirements": "MY.NumJobStarts == 0"}
    jobs = pool.shell(CROWD, image="debian:forky", stream_output="true", **once)
    _said(jobs, "ready")
    until(lambda: len(pool.processes()) >= 4, "its processes run", MATCHED_SECONDS)
    container = pool.first_process()
    with pool.kills(container) as killed:
        asked = time.time()
        jobs.command("condor_vacate_job")
        _said(jobs, "asked")
    jobs.wait("JobEvictedEvent", ignore=BAD_NEWS)
    assert 2 < killed.at - asked < 15


def test_a_fast_vacate_asks_nobody(pool: Pool) -> None:
    jobs = pool.shell(FIRST + HEAR, stream_output="true")
    _said(jobs, "ready")
    jobs.command("condor_vacate_job", "-fast")
    jobs.wait("JobEvictedEvent", ignore=BAD_NEWS)
    assert jobs.files()["out.0"] == b"ready\n"
    jobs.ended(ignore=BAD_NEWS)


@pytest.mark.cluster
def test_a_suspended_job_stands_still_with_all_its_processes_and_goes_on_when_continued(pool: Pool) -> None:
    busy = "for i in 1 2; do setsid sh -c 'while :; do :; done' & done"
    jobs = pool.shell(f"{busy}\necho ready\nsleep {scaled(15):.0f}; echo slept", stream_output="true")
    _said(jobs, "ready")
    jobs.command("condor_suspend")
    jobs.wait("JobSuspendedEvent")
    until(lambda: set(pool.inside(STATES).split()) == {"T"}, "every process is stopped")
    # The event log has it before the queue, and condor_continue looks there.
    query = ["condor_q", str(jobs.cluster), "-af", "JobStatus"]
    until(lambda: pool.lab.access_point(jobs.user, query).strip() == SUSPENDED, "the queue knows of it")
    jobs.command("condor_continue")
    jobs.wait("JobUnsuspendedEvent")
    until(lambda: "T" not in pool.inside(STATES).split(), "every process goes on")
    assert result(jobs).text == "ready\nslept\n"


@pytest.mark.cluster
def test_a_suspended_job_can_be_removed(pool: Pool) -> None:
    jobs = pool.shell(HEAR, stream_output="true")
    _said(jobs, "ready")
    jobs.command("condor_suspend")
    jobs.wait("JobSuspendedEvent")
    jobs.command("condor_rm")
    jobs.wait("JobAbortedEvent", ignore=BAD_NEWS)
    assert _said(jobs, "done") == "ready\nheard TERM\ndone\n"
