"""The engine, in both places where it is tested."""

import logging
from collections.abc import AsyncIterator

import pytest

from tests.engine.rings import Engine, Simulated, simulated
from tests.simulator.programs import Programs


def _no_faults(caplog: pytest.LogCaptureFixture) -> None:
    """The pilot logs ERROR for a fault of its own, the kubelet for a reference that came back: none may be."""
    errors = [one.getMessage() for one in caplog.get_records("call") if one.levelno >= logging.ERROR]
    assert not errors, errors


@pytest.fixture(params=["simulator", pytest.param("node", marks=pytest.mark.node)])
async def engine(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Engine]:
    """An engine that has no container."""
    if request.param == "node":
        pytest.skip("the node's ring comes later")
    async with simulated(request.getfixturevalue("programs")) as engine:
        yield engine
    _no_faults(caplog)


@pytest.fixture
async def node() -> AsyncIterator[Engine]:
    """The engine on the node, for tests that only a real kernel and kubelet can pass."""
    pytest.skip("the node's ring comes later")
    yield  # type: ignore[unreachable]


@pytest.fixture
async def simulator(programs: Programs, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Simulated]:
    """As `engine`, for tests that look into the node or break it."""
    caplog.set_level(logging.INFO)
    async with simulated(programs) as engine:
        yield engine
    _no_faults(caplog)
