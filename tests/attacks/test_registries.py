"""Attacks by registries: what an image is had from is the user's to choose."""

import json
import time

import pytest

from lab.faulty import BLOBS, Fault
from lab.oci import Pusher
from lab.registries import faulty_registry
from lab.settings import Settings
from tests.attacks.ground import BASELINE_FIRST, Ground
from tests.e2e.pool import MATCHED_SECONDS, Images, until

pytestmark = pytest.mark.landing

NODE = Settings.from_environment().runtime_agent


def _away(ground: Ground) -> bool:
    return ground.of_slot("K8SApiAwayUntil").isdecimal()


@BASELINE_FIRST  # what the node pulls, and how the engine finds out
def test_a_layer_that_comes_byte_by_byte_harms_no_later_job(ground: Ground, pusher: Pusher) -> None:
    """The node pulls it for as long as it comes, and does nothing else for the pod; condor_rm changes nothing."""
    with faulty_registry(ground.lab) as tarpit:
        tarpit.fails(Fault(BLOBS, rate=0.5, agent=NODE))
        alice = ground.submit({"container_image": Images(pusher, tarpit).fresh(), "executable": "/bin/true"})
        until(lambda: tarpit.asked(BLOBS, NODE), "the node pulls", MATCHED_SECONDS)
        alice.command("condor_rm")
        until(lambda: _away(ground), "the slot takes no job", 30)
        problems = json.loads(ground.inside("k8spilot status --json; true"))["problems"]
        assert [one for one in problems if f"still pulls image {tarpit.address}" in one], problems
        until(lambda: "delete the pod, so that another takes its place" in _events(ground), "an Event says what to do")
        bob = ground.bob()
        time.sleep(8)
        bob.look()
        assert {event.kind for event in bob.events} == {"SubmitEvent"}
        tarpit.is_well()
        ground.is_fit(bob=bob)
    until(lambda: not _away(ground), "the slot takes jobs")


def _events(ground: Ground) -> str:
    chosen = f"involvedObject.name={ground.pod},reason=StillPulling"
    of_pod = ("get", "events", "-n", ground.lab.namespace, "--field-selector", chosen)
    return ground.lab.kubectl(*of_pod, "-o", "jsonpath={.items[*].message}")
