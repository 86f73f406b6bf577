"""Sizes of the payload containers of a partitionable slot: each container gets the size of its job."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from k8spilot.common.errors import ClusterError, NotNow, PayloadLost
from k8spilot.kube.backoff import retry
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.resize import (
    ResizeRefused,
    Room,
    actual_limits,
    delay,
    generation,
    has_seen,
    limits_of,
    resize,
    wanted_size,
)
from k8spilot.model.slot_sizes import IDLE, NOTHING, Size, resized

logger = logging.getLogger(__name__)

_REQUEST_SECONDS: Final = 15.0
"""Seconds for the API server to accept a size, and for an earlier job to leave its room."""
_SHOWN_SECONDS: Final = 30.0
"""Seconds for the kubelet to resize a container and show it in the pod's status; it needs less than two."""


class ContainerSizes:
    """Sizes of the payload containers of the own pod."""

    def __init__(self, pod: OwnPod, names: Sequence[str], room: Room) -> None:
        self._pod = pod
        self._names = names
        self._room = room
        self._turn = asyncio.Lock()
        """Keeps the order of changes."""
        self._seen: dict[str, Any] | None = None
        """The pod as the API server has shown it last; None if it has to be read."""
        self._reserved: dict[str, Size | None] = {}
        """Size of each container that has a job; None if it is not known. Other containers may be made smaller."""
        self._renew: dict[str, Callable[[], None]] = {}
        """Makes a container without a job anew, by its name."""
        self._given: set[str] = set()
        """Containers with a job that have its size already."""
        self._generations: dict[str, int] = {}
        """Generation of the pod's specification in which a container got its size."""

    def reserve(self, name: str, size: Size | None) -> None:
        """Note that a container has a job, of a size or of one that is not known: such a job gets what there is."""
        self._reserved[name] = size

    async def request(self, name: str) -> None:
        """Request the reserved size for a container. Return when the API server has accepted it.

        Raises:
            NotNow: it cannot have the size now; the job is not at fault.
        """
        try:
            await retry(partial(self._request, name), _REQUEST_SECONDS)
        except ResizeRefused as error:
            raise NotNow(f"container {name} cannot get {self._reserved.get(name)}: {error}") from error

    async def _request(self, name: str) -> None:
        async with self._turn:
            try:
                await self._change(name)
            except ResizeRefused:  # with the sizes of others, or because of an old view of the pod
                self._seen = None
                await self._change(name, alone=True)

    async def shown(self, name: str) -> bool:
        """Wait until the pod's status shows that a container has the size of its job, if it has one.

        Returns:
            False if the container has more memory: it was created before its size was changed. The kubelet takes
            memory from a running container only after it has measured its use (kuberuntime_manager.go,
            validateMemoryResizeAction), which takes up to a minute after the container's start.

        Raises:
            PayloadLost: it does not in time; the job is not at fault.
        """
        size = self._reserved.get(name)
        if size is None:
            return True

        def has_settled(pod: dict[str, Any]) -> bool | None:
            found = actual_limits(pod, name)
            if found is None or found.memory < size.memory or not has_seen(pod, self._generations.get(name, 0)):
                return None
            if found.memory > size.memory:
                return False
            return True if found == limits_of(size) else None

        if (settled := await self._pod.until_shown(name, has_settled, _SHOWN_SECONDS)) is not None:
            return settled
        self._seen = None  # another client may have resized the pod
        why = delay(self._pod.pod) or "the pod's status does not show it; the node may be overloaded"
        raise PayloadLost(
            f"container {name} did not get {size} within {_SHOWN_SECONDS:.0f} s ({why}); the job goes back to the queue"
        )

    def on_shrink(self, name: str, renew: Callable[[], None]) -> None:
        """Set what makes a container anew that has no job and gets less memory."""
        self._renew[name] = renew

    async def shrink(self, *names: str) -> list[str]:
        """Make containers small that are made anew without a job next. After a refusal they keep their sizes.

        Returns:
            Names of those that were larger.
        """
        free: list[str] = []
        try:
            async with self._turn:
                now = await self._read()
                if free := [name for name in names if name not in self._reserved and now[name] != IDLE]:
                    await self._resize(dict.fromkeys(free, IDLE))
        except (ClusterError, ResizeRefused) as error:
            logger.warning("Containers keep their sizes (%s): %s.", ", ".join(names), error)
            return [] if isinstance(error, ResizeRefused) else free  # else the server may have done it
        return free

    async def shrink_all(self) -> None:
        """Make all containers small that have no job, at the engine's start: jobs find small ones, which can grow."""
        for name in await self.shrink(*self._names):
            if name not in self._reserved:
                self._renew[name]()

    def release(self, name: str) -> None:
        """Note that a container has no job any more."""
        self._reserved.pop(name, None)
        self._given.discard(name)

    async def _change(self, name: str, *, alone: bool = False) -> None:
        """Give containers the sizes of their jobs: that of `name`, and of the others that wait, in one change."""
        now = await self._read()
        if self._reserved.get(name, NOTHING) is None:
            self._reserved[name] = now[name]
        reserved = {one: size for one, size in self._reserved.items() if size is not None}
        settled = {one: size for one, size in reserved.items() if one in {name, *self._given}}
        changes = None if alone else resized(now, reserved, self._room.limits)
        if changes is None:
            reserved, changes = settled, resized(now, settled, self._room.limits)
        if changes is None:
            raise ClusterError(f"other jobs leave no room for {reserved.get(name)} in {self._room.limits}")
        try:
            if changes:
                await self._resize(changes)
        finally:  # a request that is cancelled, or whose answer is lost, may have its effect
            for one in changes.keys() - self._reserved.keys():
                self._renew[one]()
        self._given.update(reserved.keys() & self._reserved.keys())

    async def _read(self) -> dict[str, Size]:
        """Return the sizes in the pod's specification."""
        if self._seen is None:
            await self._pod.refresh()
            self._seen = self._pod.pod
            for name in self._names:  # an earlier engine, or a request whose answer was lost, may have made a change
                self._generations[name] = generation(self._seen)
        seen = self._seen
        return {name: wanted_size(seen, name, self._room) or NOTHING for name in self._names}

    async def _resize(self, changes: Mapping[str, Size]) -> None:
        seen, self._seen = self._seen, None  # not known if the answer is lost
        assert seen is not None
        self._seen = await resize(self._pod, changes, self._room, seen)
        self._generations.update(dict.fromkeys(changes, generation(self._seen)))
        logger.info("Resized %s.", ", ".join(f"{one} to {changes[one]}" for one in sorted(changes)))
