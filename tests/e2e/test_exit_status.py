"""Report of the end of a job: in the user's event log, and in the job's ad.

HTCondor's docker universe takes an exit code over 128 for death by the signal 128 below it (docker_proc.cpp), and 255
for 0 (user_proc.cpp). So a user cannot tell `exit 137` from SIGKILL, but he can always tell a failure from a success.
"""

import signal

import pytest

from lab.jobs import Jobs
from tests.e2e.pool import Pool, ads

EXACT = [0, 1, 2, 7, 126, 127, 128]
"""Codes that are told as they are."""

TAKEN_FOR_SIGNALS = [129, 130, 137, 143, 200, 254]

TOLD_AS_128 = [255]

SIGNALS = [
    signal.SIGHUP,
    signal.SIGABRT,
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGRTMIN,
    signal.SIGRTMAX,
]


def _told(jobs: Jobs, proc: int) -> tuple[int | None, int | None]:
    """Exit code and signal of a job, as its event log tells them; exactly one of them."""
    facts = jobs.ended(proc, timeout=90).attributes
    code, number = facts.get("ReturnValue"), facts.get("TerminatedBySignal")
    assert facts["TerminatedNormally"] is (number is None), facts
    assert (code is None) is not (number is None), facts
    return code, number


@pytest.mark.cluster
def test_each_exit_code_and_signal_is_told_alike_in_log_and_ad_and_a_failure_never_as_success(pool: Pool) -> None:
    ends = [f"exit {code}" for code in [*EXACT, *TAKEN_FOR_SIGNALS, *TOLD_AS_128]]
    ends += [f"kill -{number.value} $$; sleep 60" for number in SIGNALS]
    cases = "\n".join(f"{proc}) {end} ;;" for proc, end in enumerate(ends))
    jobs = pool.shell(f"ulimit -c 0\ncase $1 in\n{cases}\nesac", count=len(ends))

    told = [_told(jobs, proc) for proc in range(len(ends))]

    expected: list[tuple[int | None, int | None]] = [(code, None) for code in EXACT]
    expected += [(None, code - 128) for code in TAKEN_FOR_SIGNALS]
    expected += [(128, None) for _ in TOLD_AS_128]
    expected += [(None, number.value) for number in SIGNALS]
    assert dict(zip(ends, told, strict=True)) == dict(zip(ends, expected, strict=True))
    assert [end for end, one in zip(ends, told, strict=True) if one == (0, None)] == ["exit 0"]
    in_ads = [(ad.get("ExitCode"), ad.get("ExitSignal")) for ad in ads(jobs)]
    assert dict(zip(ends, in_ads, strict=True)) == dict(zip(ends, expected, strict=True))


@pytest.mark.cluster
def test_a_job_that_dumps_core_is_told_by_its_signal(pool: Pool) -> None:
    jobs = pool.shell("ulimit -c unlimited; kill -SEGV $$; sleep 60", coresize="1000000")
    assert _told(jobs, 0) == (None, signal.SIGSEGV)
