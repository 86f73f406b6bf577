"""A pilot pod for each test process; jobs that are gone after their test."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.faulty import FaultyRegistry
from lab.oci import Pusher
from lab.registries import faulty_registry
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here is end to end."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """The name of a pilot pod of this test process's own, whose slot is in the pool."""
    name = f"e2e-{owner}"
    pilot.deploy(lab, name)
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.delete(lab, name)


@pytest.fixture
def pool(lab: Lab, pod: str) -> Iterator[Pool]:
    """The pool. No test may make the pilot log a fault of its own, or a container run into the kubelet's back-off."""
    with ExitStack() as cleanup:
        yield Pool(lab, pod, cleanup)
    log = lab.kubectl("logs", "-n", PILOT_NAMESPACE, pod, "-c", "pilot", "--since=120s")
    faults = [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")]
    assert not faults, faults


@pytest.fixture(scope="session")
def pusher(lab: Lab) -> Pusher:
    """Puts images of any kind into the lab's registry."""
    return Pusher(lab.registry)


@pytest.fixture
def faulty(lab: Lab) -> Iterator[FaultyRegistry]:
    """A registry with the lab's images that fails when it is told to; at an address of its own for each test."""
    with faulty_registry(lab) as registry:
        yield registry
