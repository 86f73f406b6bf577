"""The node's own daemons stop, start again or stand still, at each moment of a job's life."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from lab import jobs, outages, pilot
from lab.api import Lab
from lab.faulty import BLOBS, Fault, FaultyRegistry
from lab.jobs import BAD_NEWS, Jobs
from lab.oci import Pusher
from tests.e2e.pool import MATCHED_SECONDS, Images, Pool, ads, result, runs, slot_takes_a_job_of_bob, until

pytestmark = pytest.mark.disruptive

Outage = Callable[[Lab], AbstractContextManager[None]]

OUTAGES: dict[str, Outage] = {
    "kubelet stopped": outages.kubelet_stopped,
    "kubelet slow": outages.kubelet_frozen,
    "containerd stopped": outages.containerd_stopped,
    "containerd killed": lambda lab: outages.containerd_stopped(lab, kill=True),
}

LASTS_SECONDS = 3.0
AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""

NODE = "containerd"
"""What the node's requests begin their User-Agent with."""


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod that changes to the idle image soon."""
    name = f"e2e-{owner}-node"
    pilot.deploy(lab, name, {"K8SPILOT_IDLE_AFTER_SECONDS": "1"})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.delete(lab, name)


@pytest.fixture(params=OUTAGES)
def outage(request: pytest.FixtureRequest) -> Outage:
    """One of the faults, which lasts as long as its context."""
    return OUTAGES[request.param]


def _starts(of: Jobs) -> int:
    return int(ads(of)[0]["NumShadowStarts"])


def test_a_job_that_comes_meanwhile_waits(pool: Pool, outage: Outage) -> None:
    with outage(pool.lab):
        submitted = pool.shell("echo fine")
        time.sleep(LASTS_SECONDS)
    assert result(submitted, timeout=AGAIN_SECONDS).stdout == b"fine\n"
    assert _starts(submitted) == 1


def test_a_job_whose_image_is_pulled_meanwhile_runs(
    pool: Pool, outage: Outage, pusher: Pusher, faulty: FaultyRegistry
) -> None:
    faulty.fails(Fault(BLOBS, hang=True, agent=NODE))
    submitted = pool.submit({"container_image": Images(pusher, faulty).fresh(), "executable": "/bin/echo"})
    until(lambda: faulty.asked(BLOBS, NODE), "the node pulls", MATCHED_SECONDS)
    with outage(pool.lab):
        faulty.is_well()
        time.sleep(LASTS_SECONDS)
    assert result(submitted, timeout=AGAIN_SECONDS).stdout == b"\n"
    assert _starts(submitted) == 1
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_a_job_that_is_about_to_start_meanwhile_runs(pool: Pool, outage: Outage) -> None:
    result(pool.shell("true"))  # the image is one that the pod has had: HTCondor tells of the execution early
    submitted = pool.shell("echo fine")
    submitted.wait("ExecuteEvent")
    with outage(pool.lab):
        time.sleep(LASTS_SECONDS)
    assert result(submitted, timeout=AGAIN_SECONDS).stdout == b"fine\n"
    assert _starts(submitted) == 1


def test_a_job_that_runs_meanwhile_runs_on(pool: Pool, outage: Outage) -> None:
    submitted = pool.shell("echo begun; sleep 7; echo done")
    runs(pool, "sleep 7")
    with outage(pool.lab):
        time.sleep(LASTS_SECONDS)
    assert result(submitted).stdout == b"begun\ndone\n"
    assert _starts(submitted) == 1
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_a_job_that_ends_meanwhile_has_its_result_at_once(pool: Pool, outage: Outage) -> None:
    submitted = pool.shell("sleep 12; echo done; exit 7")
    runs(pool, "sleep 12")
    with outage(pool.lab):
        done = submitted.ended(timeout=20)
        time.sleep(LASTS_SECONDS)  # and the pilot changes to the idle image, or tries to
    assert done.attributes["ReturnValue"] == 7
    assert submitted.files()["out.0"] == b"done\n"
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_a_job_that_is_removed_meanwhile_frees_the_slot(pool: Pool, outage: Outage) -> None:
    submitted = pool.shell("sleep 300")
    runs(pool, "sleep 300")
    with outage(pool.lab):
        submitted.command("condor_rm")
        submitted.wait("JobAbortedEvent", ignore=BAD_NEWS, timeout=10)
        time.sleep(LASTS_SECONDS)
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
