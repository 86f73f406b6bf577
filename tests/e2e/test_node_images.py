"""The node loses an image."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from lab import jobs, outages, pilot
from lab.api import Lab
from lab.faulty import FaultyRegistry
from lab.registries import faulty_registry
from tests.e2e.on_signal import OUTPUT, OnSignal
from tests.e2e.pool import Pool, result, slot_takes_a_job_of_bob, until

pytestmark = [pytest.mark.landing, pytest.mark.disruptive]

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""


@dataclass(frozen=True)
class Pilot:
    """A pilot with an image of its own, by name, and the registry of that."""

    registry: FaultyRegistry
    pool: Pool

    def says(self) -> str:
        """The state of the payload container."""
        return str(next(one for one in self._statuses() if one["name"] == "payload")["state"])

    def image(self) -> str:
        """The idle image."""
        return str(next(one for one in self._statuses() if one["name"] == "install")["image"])

    def _statuses(self) -> list[dict[str, object]]:
        return list(self.pool.status()["status"]["initContainerStatuses"])


@contextmanager
def _pilot(lab: Lab, name: str) -> Iterator[Pilot]:
    """Deploy a pilot with little patience: it gives up soon on faults that may pass. Delete it afterwards."""
    with faulty_registry(lab) as registry, ExitStack() as cleanup:
        address, _, tag = lab.image.replace(lab.registry, registry.address).rpartition(":")
        image = {"images": [{"name": pilot.BASE_IMAGE, "newName": address, "newTag": tag}]}
        environment = {"K8SPILOT_IDLE_AFTER_SECONDS": "1", "K8SPILOT_PATIENCE_SECONDS": "20"}
        pilot.deploy(lab, name, environment, image)
        jobs.wait_in_pool(lab, name)
        yield Pilot(registry, Pool(lab, name, cleanup))
        registry.is_well()
        pilot.delete(lab, name)


@pytest.fixture(scope="module")
def pilots(lab: Lab, owner: str) -> Iterator[tuple[Pilot, Pilot]]:
    """Two whose idle images the node loses while jobs run; the second one's registry is away."""
    if lab.settings.runtime_daemon == "crio":
        pytest.skip("CRI-O removes no image that a container has")
    with _pilot(lab, f"e2e-{owner}-image-1") as first, _pilot(lab, f"e2e-{owner}-image-2") as second:
        jobs = [OnSignal.submit(one.pool) for one in (first, second)]
        for job in jobs:
            job.wait_until_it_runs()
        second.registry.goes_away()
        outages.remove_image(lab, first.image())  # and all its names, of which the second one's is one
        for job in jobs:
            job.tell()
        assert [result(job.jobs).stdout for job in jobs] == [OUTPUT, OUTPUT]
        yield first, second


def test_an_idle_image_that_has_gone_is_pulled_again(pilots: tuple[Pilot, Pilot]) -> None:
    first, _ = pilots
    slot_takes_a_job_of_bob(first.pool, AGAIN_SECONDS)
    until(
        lambda: "running" in first.says() and first.registry.asked(agent=first.pool.lab.settings.runtime_agent),
        "the idle image runs",
    )


def test_jobs_run_though_the_idle_image_has_gone_with_its_registry(pilots: tuple[Pilot, Pilot]) -> None:
    _, second = pilots
    for _ in range(2):
        until(lambda: second.registry.address in second.says(), "the kubelet complains of it")
        slot_takes_a_job_of_bob(second.pool, AGAIN_SECONDS)
    second.registry.comes_back()
    slot_takes_a_job_of_bob(second.pool, AGAIN_SECONDS)
    until(lambda: "running" in second.says(), "the idle image runs")
