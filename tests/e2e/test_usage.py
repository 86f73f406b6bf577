"""What a job uses, as HTCondor tells it, and what it must not use."""

import re

import pytest

from tests.e2e.pool import Pool, result

BUSY = """
end=$(($(date +%s) + 12))
while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; done
times
"""

MEMORY = """perl -e '$x = "a"; $x x= {megabytes} * 1024 * 1024; print length($x), "\\n"; $| = 1; sleep {seconds};'"""


def _cpu_seconds(usage: str) -> float:
    """Of HTCondor's `Usr 0 00:00:05, Sys 0 00:00:01`."""
    parts = re.findall(r"(\d+) (\d+):(\d+):(\d+)", usage)
    return sum(int(d) * 86400 + int(h) * 3600 + int(m) * 60 + int(s) for d, h, m, s in parts)


def _own_seconds(times: str) -> float:
    """Of the shell's `times`: user and system, of itself and of its children."""
    return sum(int(m) * 60 + float(s) for m, s in re.findall(r"(\d+)m\s*([\d.]+)s", times))


def test_cpu_seconds_and_memory_are_in_the_job_log(pool: Pool) -> None:
    done = result(pool.shell(BUSY))
    own = _own_seconds(done.text)
    assert own > 3, done.text
    assert _cpu_seconds(done.event["RunRemoteUsage"]) == pytest.approx(own, rel=0.25, abs=1)


def test_memory_is_in_the_job_log(pool: Pool) -> None:
    done = result(pool.shell(MEMORY.format(megabytes=200, seconds=12), image="debian:forky"))
    assert done.code == 0, done.stderr
    assert 200 <= done.event["MemoryUsage"] <= 300


def test_more_memory_than_the_slot_has_is_a_hold_with_that_reason(pool: Pool) -> None:
    jobs = pool.shell(MEMORY.format(megabytes=1500, seconds=60), image="debian:forky")
    facts = jobs.held().attributes
    assert facts["HoldReasonCode"] == 34, facts  # JobOutOfResources
    assert "memory" in facts["HoldReason"].lower()
    assert result(pool.shell("echo next", user="bob")).stdout == b"next\n"
