"""An operator's image policy: what it refuses is held with its words, and nothing of the pod is changed for it."""

from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.oci import OciImage, Pusher, shell
from tests.e2e.pool import Pool, hold_reason, result, slot_takes_a_job_of_bob


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


def test_an_image_that_is_not_allowed_holds_the_job_with_the_policys_words(
    pool: Pool, pusher: Pusher, strict: str
) -> None:
    here = pool.of_pod(strict)
    good = pusher.push("allowed/image:1", OciImage([shell()]))
    with_volume = pusher.push("allowed/volume:1", OciImage([shell()], {"Volumes": {"/data": {}}}))
    before = here.status()["spec"]["initContainers"][1]["image"]
    cases = {
        f"docker://{pusher.address}/busybox": f"site allows images of {pusher.address}/allowed, registry.example",
        f"docker://{pusher.address}/allowedx/image@{good.partition('@')[2]}": "site allows images of",
        "docker://busybox": "docker.io/library/busybox:latest is not allowed here",
        f"docker://{good.partition('@')[0]}": "must name images by their digest",
        f"docker://{with_volume}": "declares a volume at /data",
    }
    command = {"executable": "/bin/echo", "arguments": "let in"}
    begun = {image: here.submit({**command, "container_image": image}) for image in cases}
    reasons = {image: hold_reason(held) for image, held in begun.items()}
    assert {image: reason for image, reason in reasons.items() if cases[image] not in reason} == {}
    assert here.status()["spec"]["initContainers"][1]["image"] == before
    assert result(here.submit({**command, "container_image": f"docker://{good}"})).stdout == b"let in\n"


def test_without_a_policy_any_image_is_allowed(pool: Pool) -> None:
    slot_takes_a_job_of_bob(pool)
