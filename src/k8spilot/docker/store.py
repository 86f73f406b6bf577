"""What the engine knows: the containers that HTCondor made, and images by the names it uses."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from k8spilot.common import logs
from k8spilot.common.errors import PilotError, Untimely
from k8spilot.common.http_limits import MemoryBudget
from k8spilot.docker.container import Container, Execution
from k8spilot.docker.create.specification import SlotLimits
from k8spilot.model.image import Image
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload.listeners import SlotListener

_IMAGES: Final = 256
_ID_PREFIX: Final = 12
_EXECUTIONS: Final = 256
_CONTAINERS: Final = 64
_MEMORY_BYTES: Final = 96 * 1024 * 1024
"""For all requests that are served or whose containers are kept; that of one job has at most a quarter of it."""
_JOB_PREFIX: Final = "HTCJob"
JOB_NAME: Final = re.compile(rf"{_JOB_PREFIX}(\d+)_(\d+)_(.+)_PID\d{{1,7}}")
"""How HTCondor names containers: cluster, proc, slot (docker_proc.cpp, StartJob)."""


def subject_of(name: str) -> logs.Subject:
    """What is logged of the container `name` is about its job."""
    found = JOB_NAME.fullmatch(name)
    return logs.Subject(job=f"{found[1]}.{found[2]}", slot=found[3]) if found else logs.Subject(job=name)


class NotFound(PilotError):
    """There is no such object: the docker CLI tries the next kind of object, or pulls."""


@dataclass(slots=True)
class Creation:
    """One `docker create` that waits for its bind."""

    signalled: asyncio.Future[int]
    """Done with the signal that was sent to the container, once there is one."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class ContainerStore:
    """The state behind the sockets.

    `slots` has a payload container for each slot; there is one now.
    """

    def __init__(
        self,
        slots: list[PayloadContainer],
        place: Callable[[], SlotLimits],
        tasks: asyncio.TaskGroup,
        listener: SlotListener,
    ) -> None:
        self.slots = slots
        self.listener = listener
        """Who is told of jobs that HTCondor will hold."""
        self.place = place
        """What the payload containers have, as far as jobs can ask for it."""
        self.tasks = tasks
        self.memory = MemoryBudget(_MEMORY_BYTES)
        self.containers: dict[str, Container] = {}
        self.executions: OrderedDict[str, Execution] = OrderedDict()
        self.leaving: dict[str, Container] = {}
        """By their ids, containers that are being removed, and have the slot until they are."""
        self.creating: dict[str, Creation] = {}
        """By their names, containers whose `create` waits for its bind, the oldest first."""
        self.unused_credentials = ""
        """Source of the image that was pulled last, if credentials were sent along: the kubelet cannot be given any."""
        self._doomed: tuple[str, int] | None = None
        """The name of a container, and the signal that came for it while its image was pulled: of a `create` that is
        still to come there is nothing yet that could have a state."""
        self._images: OrderedDict[str, Image] = OrderedDict()

    @property
    def payload(self) -> PayloadContainer:
        """The payload container for the next job. One is enough for a pod with one slot."""
        return self.slots[0]

    def check_room(self) -> None:
        """Raise Untimely if there are as many containers as there may be. Of HTCondor's jobs there is one at a time."""
        if len(self.containers) + len(self.creating) >= _CONTAINERS:
            raise Untimely(f"there are {_CONTAINERS} containers already; remove some")

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

    def kill_early(self, name: str, number: int) -> bool:
        """Send a signal to a container that is not there yet: False when none is on its way.

        HTCondor signals a job whose image is being pulled, too, and does not look at the answer. It knows the name, we
        learn it from `create`, but a slot has one job.
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
        """Register a `create`; the future gets a signal when one is sent to it. End it with `end_create`."""
        creation = self.creating[name] = Creation(asyncio.get_running_loop().create_future())
        if self._doomed is not None and self._doomed[0] == name:
            creation.signalled.set_result(self._doomed[1])
        self._doomed = None
        return creation.signalled

    def end_create(self, name: str) -> None:
        """Forget a `create`, whose container is in `containers` by now or never will be."""
        self.creating.pop(name).ended.set()

    def add_execution(self, execution: Execution) -> None:
        """Know `execution`; the oldest that do not run are forgotten in the end."""
        self.executions[execution.identifier] = execution
        for old in [one for one in self.executions.values() if not one.running][:-_EXECUTIONS]:
            self._forget(old)

    def forget_executions(self, container: Container) -> None:
        """Drop those of a container that is removed."""
        for old in [one for one in self.executions.values() if one.container is container]:
            self._forget(old)

    def _forget(self, execution: Execution) -> None:
        del self.executions[execution.identifier]
        self.memory.give(execution.kept)

    def execution(self, key: str) -> Execution:
        """An execution by id.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.executions[key]
        except KeyError:
            raise NotFound(f"No such exec instance: {key}") from None

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


STORE: Final = web.AppKey("engine", ContainerStore)

HTCONDORS_SOCKET: Final = web.AppKey("htcondors_socket", str)
"""Path of the socket that HTCondor's docker client is told of, and nobody else."""


def is_htcondors(request: web.Request) -> bool:
    """Whether a request came by HTCondor's own socket."""
    assert request.transport is not None
    return str(request.transport.get_extra_info("sockname")) == request.app[HTCONDORS_SOCKET]


JSON = dict[str, Any]
