"""The ground of the attacks: a pilot pod of each level, in a namespace that enforces it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.api import Lab
from lab.levels import NAMESPACES, Level
from lab.oci import Pusher
from tests.attacks.ground import Ground, attacked
from tests.runner.pilots import Configuration

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here is an attack, at each level; a module's NIGHTLY has the cases that are not for each day."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.attack)
            if isinstance(item, pytest.Function) and (callspec := getattr(item, "callspec", None)) is not None:
                case = callspec.params.get("level"), callspec.params.get("name")
                if case in getattr(item.module, "NIGHTLY", ()):
                    item.add_marker(pytest.mark.nightly)
            if item.get_closest_marker("timeout") is None:
                # Two jobs one after the other, and for the first test a pilot.
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", params=NAMESPACES)
def level(request: pytest.FixtureRequest) -> Level:
    """A level of Pod Security."""
    found: Level = request.param
    return found


@pytest.fixture(scope="module")
def battlefield(lease: Callable[[Configuration, Level], str], level: Level) -> str:
    """The name of a pilot pod of that level, which no other module uses meanwhile.

    Its jobs have little time to end: attackers' jobs do not end when they are asked to.
    """
    environment = {"K8SPILOT_VACATE_SECONDS": "10"}
    if level == "restricted":  # whose image is read-only
        environment |= {"K8SPILOT_REUSE": "true", "K8SPILOT_IDLE_AFTER_SECONDS": "60"}
    return lease(Configuration("attacks", environment), level)


@pytest.fixture
def ground(lab: Lab, battlefield: str, level: Level) -> Iterator[Ground]:
    """The pilot; after each attack it is fit, and nothing of it has been started again."""
    with attacked(lab.at(level), battlefield) as ground:
        yield ground


@pytest.fixture(scope="session")
def pusher(lab: Lab) -> Pusher:
    """Puts images of any kind into the lab's registry."""
    return Pusher(lab.registry)
