"""Volumes of the pod are full, or have no inodes left: what is in the way is taken away, and all goes on."""

import errno
from collections.abc import Iterator

import pytest

from lab import jobs, outages, pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS
from tests.e2e.pool import Pool, result, runs, slot_takes_a_job_of_bob, until
from tests.runner.nightly import each_day

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""

INPUT_HOLD = 13
"""CONDOR_HOLD_CODE::TransferInputError."""


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with volumes that can be filled without harm."""
    name = f"e2e-{owner}-disks"
    volumes = [pilot.in_memory("execute", "96Mi"), pilot.in_memory("exchange", "8Mi"), pilot.in_memory("tmp", "16Mi")]
    environment = {"K8SPILOT_IDLE_AFTER_SECONDS": "1", "K8SPILOT_MIN_FREE_MB": "1"}
    pilot.deploy(lab, name, environment, {"patches": volumes})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


_FILES: dict[str, str | bytes] = {"in": "x" * 100_000}


def test_a_job_whose_input_has_no_room_is_held_by_htcondor_and_the_slot_is_fit_when_it_has(pool: Pool) -> None:
    with outages.volume_full(pool.lab, pool.pod, "execute"):
        facts = pool.shell("cat in", files=_FILES, transfer_input_files="in").held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (INPUT_HOLD, errno.ENOSPC), facts
    assert "No space left on device" in facts["HoldReason"]
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_a_job_for_whose_sandbox_there_are_no_inodes_runs_later(pool: Pool) -> None:
    until(lambda: pool.inside("ls -A /var/lib/condor/execute/slot") == "", "no job's sandbox can leave inodes free")
    with outages.volume_full(pool.lab, pool.pod, "execute", inodes=True):
        submitted = pool.shell("cat in", files=_FILES, transfer_input_files="in")
        submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", ignore=BAD_NEWS)
    submitted.ended(timeout=AGAIN_SECONDS, ignore=BAD_NEWS)
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}
    assert submitted.files()["out.0"] == b"x" * 100_000
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_output_for_which_there_is_no_room_is_no_good_result(pool: Pool) -> None:
    submitted = pool.shell("echo begun; sleep 20; head -c 1000000 /dev/zero; echo done")
    runs(pool, "sleep 20")
    with outages.volume_full(pool.lab, pool.pod, "execute"):
        submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=60, ignore=BAD_NEWS)
    submitted.ended(timeout=AGAIN_SECONDS, ignore=BAD_NEWS)
    assert len(submitted.files()["out.0"]) == len("begun\n") + 1000000 + len("done\n")


def test_a_job_that_fills_its_sandbox_learns_it_itself(pool: Pool) -> None:
    done = result(pool.shell("cat /dev/zero >x 2>/dev/null; code=$?; rm x; echo told; exit $code", request_disk="80M"))
    assert (done.code, done.stdout) == (1, b"told\n")


@pytest.mark.parametrize("inodes", each_day((False,), (False, True)), ids=["bytes", "inodes"])
def test_jobs_run_and_follow_one_another_while_the_exchange_is_full(pool: Pool, inodes: bool) -> None:
    with outages.volume_full(pool.lab, pool.pod, "exchange", inodes=inodes):
        assert result(pool.shell("echo fine")).stdout == b"fine\n"
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


@pytest.mark.parametrize("inodes", each_day((True,), (False, True)), ids=["bytes", "inodes"])
def test_a_job_whose_tmp_is_full_ends_and_the_next_one_has_room(pool: Pool, inodes: bool) -> None:
    submitted = pool.shell("sleep 20; echo more >/tmp/mine; echo $?")
    runs(pool, "sleep 20")
    with outages.volume_full(pool.lab, pool.pod, "tmp", inodes=inodes):
        assert result(submitted).stdout == b"1\n"
        assert result(pool.shell("echo more >/tmp/mine && echo room", user="bob")).stdout == b"room\n"
