"""The engine, in both places where it is tested."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from k8spilot.kube import client, connectivity, reflector, watch_stream
from lab.api import Lab
from tests.engine.faulty import Place, faulty_simulator
from tests.engine.node import SHARED, NodePod
from tests.engine.rings import Engine, Simulated, simulated
from tests.runner.pilots import Configuration
from tests.simulator.programs import Programs

HERE = Path(__file__).parent


def _no_faults(engine: Simulated, caplog: pytest.LogCaptureFixture) -> None:
    """The pilot logs ERROR for a fault of its own only; and it never runs into the kubelet's back-off."""
    errors = [one.getMessage() for one in caplog.get_records("call") if one.levelno >= logging.ERROR]
    assert not errors, errors
    assert engine.cluster.kubelet.back_offs == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use the node's pod with `node`."""
    for item in items:
        if item.path.is_relative_to(HERE) and {"node", "node_pod"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.node)


@pytest.fixture(scope="module")
def node_pod(lab: Lab, lease: Callable[[Configuration], str]) -> Iterator[NodePod]:
    """A pilot pod that is this module's for now."""
    pod = NodePod(lab, lease(SHARED))
    with pod.without_faults():
        yield pod


@asynccontextmanager
async def on_node(pod: NodePod) -> AsyncIterator[Engine]:
    """The engine of a pod on the node, with no container."""
    with pod.reached() as path:
        async with pod.engine(path) as engine:
            await engine.remove_all()
            try:
                yield engine
            finally:
                await engine.remove_all()


@pytest.fixture(params=["simulator", pytest.param("node", marks=pytest.mark.node)])
async def engine(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Engine]:
    """An engine that has no container."""
    if request.param == "node":
        async with on_node(request.getfixturevalue("node_pod")) as found:
            yield found
        return
    async with simulated(request.getfixturevalue("programs")) as engine:
        yield engine
    _no_faults(engine, caplog)


@pytest.fixture
async def node(node_pod: NodePod) -> AsyncIterator[Engine]:
    """The engine on the node, for tests that only a real kernel and kubelet can pass."""
    async with on_node(node_pod) as engine:
        yield engine


@pytest.fixture
async def simulator(programs: Programs, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Simulated]:
    """As `engine`, for tests that look into the node or break it."""
    caplog.set_level(logging.INFO)
    async with simulated(programs) as engine:
        yield engine
    _no_faults(engine, caplog)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot loses patience with an API server that is silent within a second."""
    for module, name, seconds in (
        (reflector, "REQUEST_SECONDS", 0.4),
        (connectivity, "SILENCE_SECONDS", 1.0),
        (watch_stream, "SILENCE_SECONDS", 1.0),
        (client, "_REQUEST_SECONDS", 0.4),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
async def place(short: None, programs: Programs, tmp_path: Path) -> AsyncIterator[Place]:
    """A simulated pod."""
    async with faulty_simulator(programs, tmp_path) as place:
        yield place
