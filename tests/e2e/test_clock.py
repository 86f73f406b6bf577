"""The pilot's clock jumps, as on a node that finds its time server late."""

import time
from collections.abc import Iterator

import pytest

from lab import clock, jobs, pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS
from tests.e2e.pool import Pool, ads, result, runs, slot_takes_a_job_of_bob, until
from tests.runner.tiers import each_day

pytestmark = pytest.mark.landing

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""

JUMPS = {"a minute forwards": 60, "a minute back": -60}
SEEN_SECONDS, FAR_SECONDS = 600, 1800
"""After more than six minutes HTCondor takes its connections for dead; after more than 20 its master starts its daemons
anew (MAX_TIME_SKIP)."""


@pytest.fixture(scope="module", params=["clock"])
def pod(lab: Lab, owner: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A pilot pod with a clock that can be moved."""
    name = f"e2e-{owner}-{request.param}"
    with clock.movable(lab, name) as patches:
        # One that had no claim for ACCEPT_IDLE_MINUTES ends: by its clock, which jumps as far as the default.
        pilot.deploy(
            lab, name, {"K8SPILOT_IDLE_AFTER_SECONDS": "1", "ACCEPT_IDLE_MINUTES": "600"}, {"patches": patches}
        )
        jobs.wait_in_pool(lab, name)
        yield name
        pilot.delete(lab, name)


@pytest.mark.parametrize("jump", each_day(("a minute back",), JUMPS))
def test_a_clock_that_jumps_costs_a_running_job_nothing_and_the_next_ones_run(pool: Pool, jump: str) -> None:
    submitted = pool.shell("echo begun; sleep 10; echo done; exit 4")
    runs(pool, "sleep 10")
    seconds = JUMPS[jump]
    with clock.shifted(pool.lab, pool.pod, seconds):
        assert abs(int(pool.inside("date +%s")) - time.time() - seconds) < 60
        done = result(submitted, timeout=AGAIN_SECONDS)
        assert (done.code, done.stdout) == (4, b"begun\ndone\n")
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    assert int(ads(submitted)[0]["NumJobStarts"]) == 1


def test_a_job_under_which_the_clock_jumps_far_forwards_goes_back_to_the_queue_and_runs(pool: Pool) -> None:
    submitted = pool.shell("sleep 8; echo done")
    runs(pool, "sleep 8")
    with clock.shifted(pool.lab, pool.pod, FAR_SECONDS):
        submitted.wait("JobEvictedEvent", ignore=BAD_NEWS)
        submitted.ended(timeout=AGAIN_SECONDS, ignore=BAD_NEWS)
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
        before = pool.of_slot("DaemonStartTime")
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}
    assert submitted.files()["out.0"] == b"done\n"
    # The clock has jumped back. A job that began before HTCondor's daemons start anew would lose its starter.
    until(lambda: pool.of_slot("DaemonStartTime") not in (before, ""), "HTCondor's daemons start anew", AGAIN_SECONDS)
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    assert "Ending: " not in pool.log(3600)


# In a pod of its own, which waits for its timers for ten minutes afterwards: it can run beside the tests above.
@pytest.mark.xdist_group("a clock that jumps by ten minutes")
@pytest.mark.parametrize("pod", ["clock-2"], indirect=True)
@pytest.mark.timeout(400)
def test_a_clock_that_jumps_by_ten_minutes_costs_a_running_job_nothing(pool: Pool) -> None:
    submitted = pool.shell("echo begun; sleep 75; echo done; exit 4")
    runs(pool, "sleep 75")
    with clock.shifted(pool.lab, pool.pod, SEEN_SECONDS):
        done = result(submitted, timeout=AGAIN_SECONDS)
    assert (done.code, done.stdout) == (4, b"begun\ndone\n")
    assert int(ads(submitted)[0]["NumJobStarts"]) == 1
