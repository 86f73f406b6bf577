"""A pilot pod for each module; jobs that are gone after their test."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.api import Lab
from lab.faulty import FaultyRegistry
from lab.levels import NAMESPACES, Level
from lab.oci import Pusher
from lab.registries import faulty_registry
from tests.e2e.pool import Pool
from tests.runner.pilots import Configuration

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here is end to end."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            if item.path.name.startswith("test_gpu"):
                item.add_marker(pytest.mark.gpu)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that are marked `both_levels` in a namespace that enforces Pod Security `restricted`, too."""
    if metafunc.definition.get_closest_marker("both_levels") is not None:
        metafunc.parametrize("level", NAMESPACES, indirect=True, scope="session")


@pytest.fixture(scope="session")
def level(request: pytest.FixtureRequest) -> Level:
    """Level of Pod Security that the namespace of the pilot enforces."""
    found: Level = getattr(request, "param", os.environ.get("K8SPILOT_TEST_LEVEL", "baseline"))  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def pod(lease: Callable[[Configuration, Level], str], level: Level) -> str:
    """The name of a pilot pod that is this module's for now, whose slot is in the pool."""
    return lease(Configuration("e2e"), level)


@pytest.fixture
def pool(lab: Lab, pod: str, level: Level) -> Iterator[Pool]:
    """The pool. No test may make the pilot log a fault of its own, or a container run into the kubelet's back-off."""
    lab = lab.at(level)
    with ExitStack() as cleanup:
        pool = Pool(lab, pod, cleanup)
        yield pool
    assert not pool.faults(120)


@pytest.fixture(scope="session")
def pusher(lab: Lab) -> Pusher:
    """Puts images of any kind into the lab's registry."""
    return Pusher(lab.registry)


@pytest.fixture
def faulty(lab: Lab) -> Iterator[FaultyRegistry]:
    """A registry with the lab's images that fails when it is told to; at an address of its own for each test."""
    with faulty_registry(lab) as registry:
        yield registry
