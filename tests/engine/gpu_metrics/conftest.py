"""A pod for each test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from k8spilot.gpu.monitoring import metrics_container as subject
from k8spilot.kube.client import Access, Api
from k8spilot.kube.own_pod import OwnPod
from lab.gpu import nvml
from tests.engine.gpu_metrics.node import UUIDS, Node, pod, write
from tests.simulator.api_server import ApiServer
from tests.simulator.ephemeral import Ephemerals


@pytest.fixture(scope="session")
def library() -> Iterator[Path]:
    """The driver's, as the stub has it, where samplers of another uid can read it."""
    with tempfile.TemporaryDirectory(prefix="gm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        nvml.build(folder / nvml.LIBRARY)
        yield folder / nvml.LIBRARY


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come each second, and a container that has died is followed at once."""
    monkeypatch.setattr(subject, "REPORT_SECONDS", 1.0)
    monkeypatch.setattr(subject, "_PAUSES", (0.0, 0.1, 0.1))


@pytest.fixture
async def node(library: Path) -> AsyncIterator[Node]:
    """A pod without ephemeral containers, which an engine follows."""
    with tempfile.TemporaryDirectory(prefix="gm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        volume = folder / "volume"
        volume.mkdir(mode=0o755)
        stub = nvml.Stub(library, folder / "settings")
        write(stub, nvml.Driver([nvml.h200(number, uuid) for number, uuid in enumerate(UUIDS)]))
        server = ApiServer(pod(volume))
        async with AsyncExitStack() as parts:
            await parts.enter_async_context(server.serve())
            kubelet = Ephemerals(server, lambda _: stub.environment)
            own = OwnPod(await parts.enter_async_context(Api(Access(server.url))), "pilots", "pilot")
            for work in (kubelet.run(), own.run()):
                task = asyncio.create_task(work)
                parts.push_async_callback(asyncio.wait, [task])
                parts.callback(task.cancel)
            await own.until(lambda pod: pod)
            yield Node(server, kubelet, stub, volume, own)
