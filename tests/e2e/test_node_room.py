"""The node has no room for an image."""

from collections.abc import Iterator

import pytest

from lab import jobs, outages, pilot
from lab.api import Lab
from lab.faulty import FaultyRegistry
from lab.jobs import BAD_NEWS
from lab.oci import Pusher
from tests.e2e.pool import MATCHED_SECONDS, Images, Pool, slot_takes_a_job_of_bob, until

pytestmark = pytest.mark.disruptive

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod that gives up soon on what may pass."""
    name = f"e2e-{owner}-room"
    pilot.deploy(lab, name, {"K8SPILOT_IDLE_AFTER_SECONDS": "1", "K8SPILOT_PATIENCE_SECONDS": "20"})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.delete(lab, name)


def _payload(pool: Pool) -> str:
    statuses = pool.status()["status"]["initContainerStatuses"]
    return str(next(one for one in statuses if one["name"] == "payload")["state"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_a_job_for_whose_image_the_node_has_no_room_runs_when_it_has(
    pool: Pool,
    pusher: Pusher,
    faulty: FaultyRegistry,
    inodes: bool,
) -> None:
    with outages.image_disk_full(pool.lab, inodes=inodes):
        submitted = pool.submit({"container_image": Images(pusher, faulty).fresh(), "executable": "/bin/echo"})
        until(lambda: "no space left" in _payload(pool), "the kubelet complains of it", MATCHED_SECONDS)
    # At once, or from the queue again where the kubelet's own back-off is longer than the pilot's patience.
    assert submitted.ended(timeout=AGAIN_SECONDS, ignore=BAD_NEWS - {"JobHeldEvent"}).attributes["ReturnValue"] == 0


@pytest.mark.timeout(400)
def test_a_job_for_whose_image_the_node_has_no_room_for_long_goes_back_to_the_queue(
    pool: Pool, pusher: Pusher, faulty: FaultyRegistry
) -> None:
    with outages.image_disk_full(pool.lab):
        submitted = pool.submit({"container_image": Images(pusher, faulty).fresh(), "executable": "/bin/echo"})
        seconds = MATCHED_SECONDS + 60
        submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=seconds, ignore=BAD_NEWS)
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
