"""The pod's way to the pool is cut: no packet passes, and nobody is told."""

import time

import pytest

from lab import pod_faults
from tests.e2e.pool import Pool, ads, runs, slot_takes_a_job_of_bob

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_a_minute_without_network_costs_a_job_nothing(pool: Pool) -> None:
    submitted = pool.shell("echo begun; sleep 15; echo done; exit 5")
    runs(pool, "sleep 15")
    with pod_faults.network_cut(pool.lab, pool.pod):
        time.sleep(60)
    done = submitted.ended(timeout=AGAIN_SECONDS)
    assert done.attributes["ReturnValue"] == 5
    assert submitted.files()["out.0"] == b"begun\ndone\n"
    assert int(ads(submitted)[0]["NumJobStarts"]) == 1
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
