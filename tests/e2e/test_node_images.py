"""The node loses an image."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import jobs, outages, pilot
from lab.api import Lab
from lab.faulty import FaultyRegistry
from lab.registries import faulty_registry
from tests.e2e.pool import Pool, result, runs, slot_takes_a_job_of_bob, until

pytestmark = pytest.mark.disruptive

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""


@pytest.fixture(scope="module")
def idle(lab: Lab) -> Iterator[FaultyRegistry]:
    """The registry of the pod's own image."""
    with faulty_registry(lab) as registry:
        yield registry


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str, idle: FaultyRegistry) -> Iterator[str]:
    """A pilot pod with an image of its own, by name, that gives up soon on what may pass."""
    name = f"e2e-{owner}-images"
    address, _, tag = lab.image.replace(lab.registry, idle.address).rpartition(":")
    image = {"images": [{"name": pilot.BASE_IMAGE, "newName": address, "newTag": tag}]}
    environment = {"K8SPILOT_IDLE_AFTER_SECONDS": "1", "K8SPILOT_PATIENCE_SECONDS": "20"}
    pilot.deploy(lab, name, environment, image)
    jobs.wait_in_pool(lab, name)
    yield name
    idle.is_well()
    pilot.delete(lab, name)


@contextmanager
def _without_idle_image(pool: Pool) -> Iterator[None]:
    """Run a job, and take the idle image from the node meanwhile; in the context the unbind has been asked for."""
    submitted = pool.shell("sleep 15; echo done")
    runs(pool, "sleep 15")
    image = next(one for one in _statuses(pool) if one["name"] == "install")["image"]
    outages.remove_image(pool.lab, str(image))
    assert result(submitted).stdout == b"done\n"
    yield


def _statuses(pool: Pool) -> list[dict[str, object]]:
    return list(pool.status()["status"]["initContainerStatuses"])


def _payload(pool: Pool) -> str:
    return str(next(one for one in _statuses(pool) if one["name"] == "payload")["state"])


def test_an_idle_image_that_has_gone_is_pulled_again(pool: Pool, idle: FaultyRegistry) -> None:
    with _without_idle_image(pool):
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    until(lambda: "running" in _payload(pool) and idle.asked(agent="containerd"), "the idle image runs")


def test_jobs_run_though_the_idle_image_has_gone_with_its_registry(pool: Pool, idle: FaultyRegistry) -> None:
    idle.goes_away()
    with _without_idle_image(pool):
        until(lambda: idle.address in _payload(pool), "the kubelet complains of it")
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
        until(lambda: idle.address in _payload(pool), "the kubelet complains of it again")
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    idle.comes_back()
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    until(lambda: "running" in _payload(pool), "the idle image runs")
