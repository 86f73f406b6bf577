"""Pilots reduced to their API traffic: one API client and one watch of the project's own for each pod."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from k8spilot.kube.backoff import retry
from k8spilot.kube.client import Access, Api, ApiRefusal
from k8spilot.kube.own_pod import OwnPod, Sidecar
from k8spilot.kube.pod import container
from k8spilot.settings.slots import BIND

PAYLOAD = "payload"
PATIENCE_SECONDS = 120.0
"""Time limit of a bind that the API server refuses, as in pilots."""


@dataclass(frozen=True)
class Request:
    """A request of a pilot."""

    at: float
    """Time at which it was recorded (time.monotonic)."""
    verb: str
    refused: bool = False
    """Whether the server refused it, finally or for the present (429)."""


class CountedApi(Api):
    """The project's client, with a record of its requests in a list that all pilots share."""

    def __init__(self, access: Access, seen: list[Request]) -> None:
        super().__init__(access)
        self._seen = seen

    @asynccontextmanager
    async def open(self, verb: str, path: str, **wanted: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a request, and record it when its answer begins. A request that reaches no server is not recorded.

        A watch from a version that the server has forgotten is refused (410) in its answer, after the begin.
        """
        place: int | None = None
        try:
            async with super().open(verb, path, **wanted) as response:
                place = len(self._seen)
                self._seen.append(Request(time.monotonic(), verb))
                yield response
        except ApiRefusal:
            if place is None:
                self._seen.append(Request(time.monotonic(), verb, refused=True))
            else:
                self._seen[place] = replace(self._seen[place], refused=True)
            raise


class SimulatedPilot:
    """The pilot of one pod, without HTCondor, engine and payload."""

    def __init__(self, url: str, account: Path, namespace: str, name: str, uid: str, seen: list[Request]) -> None:
        self._api = CountedApi(Access(url, account), seen)
        self._pod = OwnPod(self._api, namespace, name, uid)
        self._task: asyncio.Task[None] | None = None
        self._binds = 0
        self._turn = asyncio.Lock()

    def begin(self) -> None:
        """Follow the pilot's own pod."""
        self._task = asyncio.create_task(self._pod.run())

    async def seen(self) -> None:
        """Wait until the pilot has seen its pod."""
        await self._pod.until(lambda pod: pod)

    async def watching(self) -> None:
        """Wait until its watch has no errors."""
        await self._pod.connectivity.over()

    async def bind(self) -> float:
        """Change the payload's image; return the seconds from the PATCH until the pod's status shows it running."""
        async with self._turn:
            self._binds += 1
            wanted = f"registry.example.org/image:job-{self._binds}@sha256:{'0' * 64}"
            began = time.monotonic()
            await retry(
                partial(self._pod.set_image, Sidecar(PAYLOAD, BIND), wanted, uuid.uuid4().hex), PATIENCE_SECONDS
            )

            def runs(pod: dict[str, Any]) -> bool | None:
                now = container(pod, PAYLOAD)
                return True if now and now.running and now.image == wanted else None

            await self._pod.until(runs)
            return time.monotonic() - began

    async def end(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._api.__aexit__()
