"""The engine's objects: the containers that HTCondor created, and images by the names that HTCondor uses."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from k8spilot.common import logs
from k8spilot.common.aio import first_of, side_by_side
from k8spilot.common.background import Background
from k8spilot.common.errors import BindError, NotHere, NotNow, PilotError, Untimely
from k8spilot.common.http_limits import MemoryBudget
from k8spilot.common.lru import LruDict
from k8spilot.docker.container import Container, Execution
from k8spilot.docker.create_request.specification import SlotLimits
from k8spilot.docker.job_ends import JobEnds
from k8spilot.model.image import Image
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload.listeners import SlotListener

JSON = dict[str, Any]

_IMAGES: Final = 256
_ID_PREFIX: Final = 12
_EXECUTIONS: Final = 256
_CONTAINERS: Final = 64
_VACATE_SECONDS: Final = 10.0
"""Seconds in which a starter ends a job that HTCondor vacates; it needs less than one."""
_MEMORY_BYTES: Final = 96 * 1024 * 1024
"""Memory for all requests that are being served or whose containers are kept; a job has at most a quarter of it."""
_JOB_PREFIX: Final = "HTCJob"
JOB_NAME: Final = re.compile(rf"{_JOB_PREFIX}(\d+)_(\d+)_(.+)_PID\d{{1,7}}")
"""HTCondor's names of containers: cluster, proc, slot (docker_proc.cpp, StartJob)."""


def subject_of(name: str) -> logs.Subject:
    """Return the subject of log lines about the container `name`: its job."""
    match = JOB_NAME.fullmatch(name)
    return logs.Subject(job=f"{match[1]}.{match[2]}", slot=match[3]) if match else logs.Subject(job=name)


class NotFound(PilotError):
    """Raised when there is no such object: the docker CLI then tries the next kind of object, or pulls."""


@dataclass(slots=True)
class Creation:
    """A `docker create` that waits for its bind."""

    signalled: asyncio.Future[int]
    """Done when a signal was sent to the container; its number."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class ContainerStore:
    """State behind the Docker sockets of one slot."""

    def __init__(
        self,
        payload: PayloadContainer,
        slot_limits: Callable[[], SlotLimits],
        tasks: asyncio.TaskGroup,
        listener: SlotListener,
        job_ends: JobEnds,
        *,
        holds_refused: bool = False,
        vacate: Callable[[str, str], Coroutine[Any, Any, bool]] | None = None,
    ) -> None:
        self.payload = payload
        """The slot's payload container."""
        self._vacate = vacate
        """Makes HTCondor vacate a job of the slot, and returns whether it will; None without HTCondor."""
        self._holds_refused = holds_refused
        """Whether HTCondor holds jobs whose image cannot run at this site."""
        self.listener = listener
        """Listener for jobs that HTCondor will hold."""
        self.job_ends = job_ends
        self.slot_limits = slot_limits
        """Returns the resources of the payload containers that jobs can request."""
        self.background = Background(payload.name, tasks)
        self.memory = MemoryBudget(_MEMORY_BYTES)
        self.containers: dict[str, Container] = {}
        self.executions: OrderedDict[str, Execution] = OrderedDict()
        self.leaving: dict[str, Container] = {}
        """Containers by id that are being removed. They occupy the slot until then."""
        self.creating: dict[str, Creation] = {}
        """Containers by name whose `create` waits for its bind, the oldest first."""
        self.unused_credentials = ""
        """Source of the last pulled image, if the client sent credentials: the kubelet cannot use them."""
        self._doomed: tuple[str, int] | None = None
        """Name of a container, and the signal that arrived during the pull of its image. Before its `create` there is
        no object that could have this state."""
        self._images: LruDict[str, Image] = LruDict(_IMAGES)

    def check_room(self) -> None:
        """Raise Untimely at the maximum number of containers. HTCondor has one job at a time."""
        if len(self.containers) + len(self.creating) >= _CONTAINERS:
            raise Untimely(f"there are {_CONTAINERS} containers already; remove some")

    def return_job(self, container: Container) -> None:
        """Make HTCondor vacate the job of a lost container."""
        self.background.start(lambda: self._return(container), f"return of {container.name}")

    async def _return(self, container: Container) -> None:
        if self._vacate is None:
            container.end_return()
            return
        try:
            async with side_by_side(
                self._vacate(container.subject.job, container.subject.slot), container.settled.wait()
            ) as waits:
                vacating, settled = waits
                # A starter that has ended, or removes the container, needs no request: it could reach the next job.
                await first_of(vacating, settled)
                if not settled.done() and vacating.result():
                    await first_of(settled, seconds=_VACATE_SECONDS)
        finally:
            container.end_return()

    def requeues(self, error: BindError) -> bool:
        """Return whether a job goes back to the queue after `error`, and is not held."""
        return isinstance(error, NotNow) or (isinstance(error, NotHere) and not self._holds_refused)

    def find(self, key: str) -> Container:
        """Return the container with the name, id, or beginning of the id.

        Raises:
            NotFound: there is no such object.
        """
        if key in self.containers:
            return self.containers[key]
        for container in self.containers.values():
            if len(key) >= _ID_PREFIX and container.identifier.startswith(key):
                return container
        raise NotFound(f"No such container: {key}")

    def kill_early(self, name: str, number: int) -> bool:
        """Send a signal to a container that does not exist yet; return False if none is being created.

        HTCondor also signals a job whose image is being pulled, and ignores the answer. During the pull the
        engine does not know the container's name yet, but the slot has one job only.
        """
        if (creation := self.creating.get(name)) is not None:
            if not creation.signalled.done():
                creation.signalled.set_result(number)
            return True
        if name.startswith(_JOB_PREFIX) and name not in self.containers and self.payload.give_up():
            self._doomed = (name, number)
            return True
        return False

    def begin_create(self, name: str) -> asyncio.Future[int]:
        """Register a `create`, and return a future for signals to it. End it with `end_create`."""
        creation = self.creating[name] = Creation(asyncio.get_running_loop().create_future())
        if self._doomed is not None and self._doomed[0] == name:
            creation.signalled.set_result(self._doomed[1])
        self._doomed = None
        return creation.signalled

    def end_create(self, name: str) -> None:
        """Unregister a `create`. Its container is in `containers` by now, or will never be."""
        self.creating.pop(name).ended.set()

    def add_execution(self, execution: Execution) -> None:
        """Add `execution`, and drop the oldest ones that do not run."""
        self.executions[execution.identifier] = execution
        for old in [execution for execution in self.executions.values() if not execution.running][:-_EXECUTIONS]:
            self._forget(old)

    def forget_executions(self, container: Container) -> None:
        """Drop the executions of a removed container."""
        for old in [execution for execution in self.executions.values() if execution.container is container]:
            self._forget(old)

    def _forget(self, execution: Execution) -> None:
        del self.executions[execution.identifier]
        self.memory.give(execution.kept)

    def execution(self, key: str) -> Execution:
        """Return the execution with the id.

        Raises:
            NotFound: there is no such object.
        """
        try:
            return self.executions[key]
        except KeyError:
            raise NotFound(f"No such exec instance: {key}") from None

    def remember(self, name: str, image: Image) -> None:
        """Store `image` under `name`, as `docker inspect` and `docker tag` use it."""
        self._images[name] = image

    def forget(self, name: str) -> None:
        """Drop a name."""
        self.image(name)
        del self._images[name]

    def image(self, name: str) -> Image:
        """Return the image that was bound or tagged under `name`.

        Raises:
            NotFound: there is no such object.
        """
        for known in (name, f"{name}:latest"):
            if known in self._images:
                return self._images[known]
        raise NotFound(f"No such image: {name}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A socket of the engine."""

    store: ContainerStore
    """Containers of its slot."""
    of_htcondor: bool = False
    """Whether only HTCondor's docker client knows it."""


ENDPOINT: Final = web.RequestKey("endpoint", Endpoint)
"""Key of the socket of a request (docker/server.py sets it)."""


def store_of(request: web.Request) -> ContainerStore:
    """Return the containers of the slot to which the request's socket belongs."""
    endpoint: Endpoint = request[ENDPOINT]
    return endpoint.store


def is_htcondors(request: web.Request) -> bool:
    """Return whether a request came through a socket of HTCondor's own."""
    endpoint: Endpoint | None = request.get(ENDPOINT)
    return endpoint is not None and endpoint.of_htcondor
