"""An operator's image policy: what it refuses is left to other sites, and nothing of the pod is changed for it."""

from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS
from lab.oci import OciImage, Pusher, shell
from tests.e2e.pool import MATCHED_SECONDS, Pool, is_left_alone, result, slot_takes_a_job_of_bob, until


@pytest.fixture(scope="module")
def strict(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod whose jobs may use some images of the lab's registry, by digest."""
    name = f"e2e-{owner}-strict"
    allowed = f"{lab.registry}/allowed, registry.example"
    policy = {"K8SPILOT_REQUIRE_DIGEST": "true", "K8SPILOT_ALLOW_IMAGE_VOLUMES": "false"}
    pilot.deploy(lab, name, {"K8SPILOT_ALLOWED_IMAGES": allowed, **policy})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


@pytest.mark.landing
def test_jobs_whose_images_are_not_allowed_are_left_to_other_sites_and_told_why(
    pool: Pool, pusher: Pusher, strict: str
) -> None:
    here = pool.of_pod(strict)
    good = pusher.push("allowed/image:1", OciImage([shell()]))
    with_volume = pusher.push("allowed/volume:1", OciImage([shell()], {"Volumes": {"/data": {}}}))
    before = here.status()["spec"]["initContainers"][1]["image"]
    not_taken = (
        f"docker://{pusher.address}/busybox",
        f"docker://{pusher.address}/allowedx/image@{good.partition('@')[2]}",
        "docker://busybox",
        f"docker://{good.partition('@')[0]}",
    )
    command = {"executable": "/bin/echo", "arguments": "let in"}
    waiting = [here.submit({**command, "container_image": image}) for image in not_taken]
    # The pilot knows the content of an image only after the registry has answered.
    returned = here.submit({**command, "container_image": f"docker://{with_volume}"})
    returned.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=MATCHED_SECONDS + 30, ignore=BAD_NEWS)
    avoided = with_volume.replace(":1@", "@")
    until(lambda: here.of_slot("K8SAvoidedImages") == avoided, "the slot says what it avoids")
    assert here.status()["spec"]["initContainers"][1]["image"].startswith(before)  # the idle image
    assert result(here.submit({**command, "container_image": f"docker://{good}"})).stdout == b"let in\n"
    for jobs_ in (*waiting, returned):
        is_left_alone(jobs_, 0)
        jobs_.look()
        assert not {"JobHeldEvent", "JobTerminatedEvent"} & {event.kind for event in jobs_.events}
    analysis = ["condor_q", "-better-analyze:reverse", "-machine", here.of_slot("Name"), str(waiting[0].cluster)]
    assert "K8SJobRepository" in pool.lab.access_point("alice", analysis)


def test_without_a_policy_any_image_is_allowed(pool: Pool) -> None:
    slot_takes_a_job_of_bob(pool)
