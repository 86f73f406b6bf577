"""What the engine knows: the containers that HTCondor made, and images by the names it uses."""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from k8spilot.docker.translate import Specification
from k8spilot.errors import PayloadLost, PilotError
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.outcome import Outcome
from k8spilot.payload.run import Run
from k8spilot.payload.runner import PayloadContainer
from k8spilot.payload.stdio import Sink

_IMAGES: Final = 256
_ID_PREFIX: Final = 12


class NotFound(PilotError):
    """There is no such object: the docker CLI tries the next kind of object, or pulls."""


@dataclass(slots=True)
class Container:
    """One `docker create`."""

    name: str
    """As asked for; otherwise the beginning of the id."""
    image: Image
    specification: Specification
    payload: PayloadContainer
    """The payload container that it was given; one for each slot."""
    command: Command
    identifier: str = field(default_factory=lambda: secrets.token_hex(32))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    sinks: list[Sink] = field(default_factory=list)
    """Whoever is attached, before the start or after."""
    run: Run | None = None
    error: str = ""
    """Why it could not be started; HTCondor holds a job with any text here."""
    lost: PayloadLost | None = None
    """Set when its payload container went away while it started, or whoever waited for it did: it has no result."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more will happen: it has ended, is lost, removed, or could not be started."""

    def __post_init__(self) -> None:
        self.name = self.name or self.identifier[:_ID_PREFIX]

    @property
    def running(self) -> bool:
        """Docker's State.Running."""
        return self.run is not None and not self.run.ended.done()

    @property
    def outcome(self) -> Outcome | None:
        """The result, once there is one.

        Raises:
            PayloadLost: there never will be.
        """
        if self.lost is not None:
            raise self.lost
        return self.run.ended.result() if self.run is not None and self.run.ended.done() else None


class Engine:
    """The state behind the socket.

    `slots` has a payload container for each slot; there is one now.
    """

    def __init__(self, slots: list[PayloadContainer], execute: str) -> None:
        self.slots = slots
        self.execute = execute
        self.containers: dict[str, Container] = {}
        self._images: OrderedDict[str, Image] = OrderedDict()

    @property
    def payload(self) -> PayloadContainer:
        """The payload container for the next job. One is enough for a pod with one slot."""
        return self.slots[0]

    def find(self, key: str) -> Container:
        """A container by name, id, or the beginning of its id.

        Raises:
            NotFound: there is none.
        """
        if key in self.containers:
            return self.containers[key]
        for container in self.containers.values():
            if len(key) >= _ID_PREFIX and container.identifier.startswith(key):
                return container
        raise NotFound(f"No such container: {key}")

    def remember(self, name: str, image: Image) -> None:
        """Know `image` by `name`, as `docker inspect` and `docker tag` use it."""
        self._images[name] = image
        self._images.move_to_end(name)
        if len(self._images) > _IMAGES:
            self._images.popitem(last=False)

    def forget(self, name: str) -> None:
        """Drop a name."""
        self.image(name)
        del self._images[name]

    def image(self, name: str) -> Image:
        """The image that was bound, or tagged, under `name`.

        Raises:
            NotFound: there is none.
        """
        for known in (name, f"{name}:latest"):
            if known in self._images:
                return self._images[known]
        raise NotFound(f"No such image: {name}")


ENGINE: Final = web.AppKey("engine", Engine)

JSON = dict[str, Any]
