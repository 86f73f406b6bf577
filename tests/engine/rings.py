"""Places where the engine's tests run, with the facts that the tests need beside the socket."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from k8spilot.common import pilot_api
from lab.patience import scaled
from tests.engine.client import Client
from tests.simulator.api_server import ApiServer
from tests.simulator.cluster import Cluster, simulate
from tests.simulator.images import REGISTRY
from tests.simulator.programs import Programs

SANDBOX: Final = "/var/lib/condor/execute"
"""The folder that the payload container shares with HTCondor."""
UNTIL_GO: Final = f"until [ -e {SANDBOX}/go ]; do sleep 0.1; done; "
"""Beginning of a job's script, which waits for `Simulated.go`.

A signal cannot take its place: the engine takes a signal to a job of HTCondor for the job's removal.
"""


class Engine(Client, ABC):
    """The engine of one pilot, and its pod from the outside."""

    tells_of_hang_ups = True
    """Whether the engine gets to know when a connection is cut here."""

    @abstractmethod
    def image(self, name: str) -> str:
        """Reference of an image: busybox, debian (both with a shell), hello (one static program, /hello)."""

    @abstractmethod
    async def processes(self) -> list[str]:
        """Command lines of what runs under the payload's uid, but payload-init."""

    @abstractmethod
    async def pod(self) -> dict[str, Any]:
        """The pod, as the API server has it."""

    async def payload(self) -> dict[str, Any]:
        """The payload container's status in it."""
        statuses = (await self.pod())["status"]["initContainerStatuses"]
        return next(dict(one) for one in statuses if one["name"] == "payload")


class Simulated(Engine):
    """In the simulator."""

    def __init__(self, cluster: Cluster, slot: int = 0) -> None:
        super().__init__(cluster.settings.slots[slot].socket)
        self.cluster = cluster

    @property
    def go(self) -> Path:
        """The file for which `UNTIL_GO` waits."""
        return self.cluster.volumes.execute / "go"

    def image(self, name: str) -> str:
        """As in the lab."""
        tag = {"debian": "forky"}.get(name, "latest")
        return f"{REGISTRY}/{name}:{tag}"

    async def processes(self) -> list[str]:
        """From this machine's own table."""
        return self.cluster.processes()

    async def pod(self) -> dict[str, Any]:
        """From the simulated API server."""
        return self.cluster.server.pod


@asynccontextmanager
async def simulated(programs: Programs, **settings: Any) -> AsyncIterator[Simulated]:
    """A simulated pod of one's own, with other settings than usual (see `simulate`)."""
    async with simulate(programs, **settings) as cluster:
        engine = Simulated(cluster)
        async with engine:
            try:
                yield engine
            finally:
                await engine.remove_all()


@asynccontextmanager
async def several_slots(programs: Programs, number: int, **settings: Any) -> AsyncIterator[list[Simulated]]:
    """The slots of a simulated pod with several payload containers."""
    async with simulate(programs, payload_containers=number, **settings) as cluster, AsyncExitStack() as ends:
        slots = [await ends.enter_async_context(Simulated(cluster, slot)) for slot in range(number)]
        try:
            yield slots
        finally:
            for slot in slots:
                await slot.remove_all()


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait until something outside of the engine is so, which nothing tells of.

    Raises:
        TimeoutError: it does not come to be so.
    """
    async with asyncio.timeout(scaled(seconds)):
        while not await condition():  # noqa: ASYNC110 -- there is no event to wait for
            await asyncio.sleep(0.02)


async def patched(simulator: Simulated) -> bool:
    """Whether the pilot has changed its pod."""
    return simulator.cluster.server.requests["patch"] > 0


async def is_starting(engine: Client) -> bool:
    """Whether a start has been requested, and waits for the pod's status."""
    found = (await engine.ask("GET", pilot_api.STATUS, version="")).json
    return bool(found["slots"][0]["state"] == "preparing")


def read(path: Path) -> str:
    """A file's text; empty when there is none."""
    return path.read_text() if path.exists() else ""


async def set_image(server: ApiServer, image: str) -> None:
    """Change the payload container's image as somebody else does."""

    def change(pod: dict[str, Any]) -> None:
        next(one for one in pod["spec"]["initContainers"] if one["name"] == "payload")["image"] = image

    await server.update(change)
