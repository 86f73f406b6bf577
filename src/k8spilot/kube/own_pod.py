"""The pilot's own pod: followed by one watch, changed by one kind of patch.

An API server may be away, slow, or lose its answers, at any moment. Nothing here takes silence for a result: a watch is
begun again from where it was, later each time, and a patch says what it changes from, so that one which takes effect
late cannot undo what came after it.
"""

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, TypeVar

import aiohttp

from k8spilot.common.errors import ClusterError, ClusterRefused
from k8spilot.kube.backoff import BackOff
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.kube.connectivity import Connectivity
from k8spilot.kube.pod import clear_managed_fields_operations, image_of, set_bind_operations, version_of
from k8spilot.kube.watch_stream import events

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WATCH_SECONDS: Final = (240, 300)
"""The server ends a watch after a time drawn from here, so that pilots do not come back all at once."""
_BACK_OFF_SECONDS: Final = (1.0, 30.0)
_STEADY_SECONDS: Final = 30.0
"""A watch that lasted for this long was a good one: if the server has ended it, the next begins at once."""
_NEED_SECONDS: Final = 60.0
"""For so long after a change its outcome is waited for, and a watch that was lost is begun again soon."""
_REQUEST_SECONDS: Final = 30.0
_CONFLICTS: Final = 3
_DEFINITE: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Statuses of a PATCH that is refused for what it asks: admission policies and webhooks, validation."""
NOT_READY: Final = re.compile(r"\bnot yet ready to handle request")
"""A refusal (403) of a server that has just begun, in an admission plugin's words (admission/handler.go)."""
_OF_THE_PILOT: Final = re.compile(rf'\bcannot patch resource "pods"|{NOT_READY.pattern}')
"""Refusals (403) that are not about the image: the authorizer's words are about who asks (apiserver,
endpoints/handlers/responsewriters/errors.go)."""


class OwnPod:
    """The pod that this process runs in.

    `follow` keeps it current; everything else waits for what it sees.
    """

    def __init__(self, api: Api, namespace: str, name: str, uid: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        self.gone = False
        self.connectivity = Connectivity(lambda: api.heard)
        """Why it cannot be watched or changed, while that is so."""
        self._uid = uid
        """A pod of the same name may follow this one, while a node that was cut off still runs this one."""
        self._pod: dict[str, Any] | None = None
        self._version = ""
        """Where the watch is; empty when the pod has to be listed first."""
        self._changed = asyncio.Condition()
        """Of the pod."""
        self._answered = asyncio.Event()
        """Set when the API server did something, which is a reason to watch again now."""
        self._unmanage = True
        """Whether the account of who manages the pod's fields is ended where there is one."""
        self._asked = -_NEED_SECONDS
        """When a change was asked for last (the event loop's clock, seconds)."""
        self._patching = asyncio.Lock()
        """Patches are sent in the order in which they are made."""

    @property
    def pod(self) -> dict[str, Any]:
        """The pod as last seen, in the API's JSON.

        Raises:
            ClusterError: it has not been seen yet.
        """
        if self._pod is None:
            raise ClusterError(f"pod {self.namespace}/{self.name} has not been read from the Kubernetes API yet")
        return self._pod

    @property
    def uid(self) -> str:
        """Its uid; empty if that was neither told nor seen."""
        return self._uid

    @property
    def seen(self) -> bool:
        """Whether it has been seen at all."""
        return self._pod is not None

    async def until(self, look: Callable[[dict[str, Any]], T | None]) -> T:
        """Wait until `look` finds something in the pod, and return that. The caller sets the time limit."""
        async with self._changed:
            while True:
                if self._pod is not None and (found := look(self._pod)) is not None:
                    return found
                await self._changed.wait()

    async def refresh(self) -> None:
        """Read the pod, for when it has to be known that the watch did not miss anything.

        Raises:
            ClusterError: it cannot be read.
        """
        await self._list()
        self._answered.set()

    async def set_image(self, container: str, image: str, bind: str) -> dict[str, Any] | None:
        """Ask for another image of the native sidecar `container`. Returns when the API server has taken it.

        Args:
            container: its name.
            image: the reference.
            bind: a new name of this change, hexadecimal digits, which the container that is made for it gets to know.

        Returns:
            The pod at that moment, whose status still is that of the container before; None when an earlier try had
            taken effect, whose answer was lost.

        Raises:
            ClusterRefused: it never will: a policy, an invalid reference.
            ClusterError: it did not this time, or does not let this pilot.
        """
        self._asked = asyncio.get_running_loop().time()
        try:
            async with self._patching, asyncio.timeout(_REQUEST_SECONDS):
                answer = await self._patch(container, image, bind)
        except TimeoutError:
            fault = ClusterError(f"no answer within {_REQUEST_SECONDS:.0f} s")
        except ClusterError as error:
            fault = error
        else:
            await self.connectivity.note("patch", "")
            self._answered.set()
            return answer
        words = f"the image of container {container} in pod {self.namespace}/{self.name} cannot be changed now: {fault}"
        await self.connectivity.note("patch", words)
        raise _like(fault, words) from fault

    async def follow(self) -> None:
        """List and watch until the pod is gone. Comes back from every failure, later each time."""
        loop = asyncio.get_running_loop()
        back_off = BackOff(*_BACK_OFF_SECONDS)
        expired = steady = False
        while not self.gone:
            began = loop.time()
            fault: Exception | None = None
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiRefusal as error:
                # It may know less than we do (its etcd was restored), or more than it remembers (410): list again.
                self._version = ""
                fault = error
            except (ClusterError, aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
                fault = error
            # A server that has just begun remembers nothing, but is there again.
            again, expired = expired, fault is not None and _is_expired(fault)
            lasted = loop.time() - began >= _STEADY_SECONDS
            steady = steady or lasted
            if lasted or (expired and not again):
                back_off.reset()
                if fault is None:
                    continue
            # A server that goes takes the watches of all pilots with it, and is to be found by them one after another.
            calm = steady and not expired and loop.time() - self._asked >= _NEED_SECONDS
            steady = False
            await self._pause(fault, back_off.scatter() if calm else back_off.pause(fault))

    async def _pause(self, fault: Exception | None, seconds: float) -> None:
        """Wait before the next watch; not so long when something else shows that the server is there."""
        if self.gone:
            return
        if fault is None or _is_expired(fault):
            logger.info("The watch of the own pod has ended; watching again in %.1f s.", seconds)
        else:
            logger.warning("The own pod cannot be watched (%s); trying again in %.1f s.", _words(fault), seconds)
            await self.connectivity.note("watch", f"the own pod cannot be watched: {_words(fault)}")
        if getattr(fault, "retry_after", None):
            await asyncio.sleep(seconds)
            return
        self._answered.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._answered.wait()

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def _patch(self, container: str, image: str, bind: str) -> dict[str, Any] | None:
        """Change the image from what it is known to be; where it is not, look and try again."""
        place, now = image_of(self.pod, container)
        if now == image:
            await self._list()  # what the watch tells may be the past
        plain = not self._unmanage
        for _ in range(_CONFLICTS):
            place, now = image_of(self.pod, container)
            if now == image:
                return None
            more = [] if plain else clear_managed_fields_operations(self.pod)
            # A patch that was given up may still arrive. It finds another image by then, and must not change that.
            changes = [
                {"op": "test", "path": "/metadata/uid", "value": self._uid},
                {"op": "test", "path": place, "value": now},
                {"op": "replace", "path": place, "value": image},
                set_bind_operations(self.pod, bind),
                *more,
            ]
            try:
                answer = await self.api.read("patch", f"{self._path}/{self.name}", body=changes)
            except ApiRefusal as error:
                if error.status not in _DEFINITE | {HTTPStatus.CONFLICT}:
                    raise
                refusal = error
            else:
                self._unmanage = not plain
                return answer
            await self._list()
            # Another image by now, or annotations that came or went: the patch was made for another pod.
            is_same = image_of(self.pod, container)[1] == now and set_bind_operations(self.pod, bind) in changes
            if refusal.status != HTTPStatus.CONFLICT and is_same:
                if more:  # it may be this that somebody does not want, and no job needs it
                    plain = True
                    continue
                if _OF_THE_PILOT.search(str(refusal)):
                    raise refusal
                raise ClusterRefused(f"the Kubernetes API does not take image {image}: {refusal}") from refusal
        raise ClusterError("something else changes it, too")

    async def _list(self) -> None:
        """Read the pod; the watch goes on from here if it has nowhere to begin."""
        answer = await self.api.read("list", self._path, query={"fieldSelector": f"metadata.name={self.name}"})
        try:
            found = next((one for one in answer["items"] if self._is_own(one)), None)
            here = str(answer["metadata"]["resourceVersion"])
        except (LookupError, TypeError) as error:
            raise ClusterError("the Kubernetes API answered with something else than a list of pods") from error
        if found is None:
            await self._lose()
            raise ClusterError(f"pod {self.namespace}/{self.name} is gone")
        if self._version:  # the watch goes on, and may have been faster
            await self._see(found)
            return
        async with self._changed:
            self._pod = found  # whatever it is: what we had may be of an etcd that is no more
            self._changed.notify_all()
        self._version = here

    async def _watch(self) -> None:
        """Follow events from the version on that is known, until the server ends the watch."""
        query = {
            "fieldSelector": f"metadata.name={self.name}",
            "watch": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 -- spreads load, hides nothing
            "allowWatchBookmarks": "true",
        }
        async with self._opened(query) as response:
            await self.connectivity.note("watch", "")
            async for event in events(response.content):
                self.api.hear()
                seen = event["object"]
                self._version = seen["metadata"]["resourceVersion"]
                if event["type"] == "DELETED" or (event["type"] != "BOOKMARK" and not self._is_own(seen)):
                    await self._lose()
                    return  # the server would keep the watch open
                if event["type"] != "BOOKMARK":
                    await self._see(seen)

    @asynccontextmanager
    async def _opened(self, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a watch, whose headers come at once or never; its events are waited for by `events`."""
        async with AsyncExitStack() as parts:
            async with asyncio.timeout(_REQUEST_SECONDS):
                response = await parts.enter_async_context(self.api.open("watch", self._path, query=query))
            yield response

    def _is_own(self, pod: dict[str, Any]) -> bool:
        found = str(pod["metadata"]["uid"])
        self._uid = self._uid or found
        return found == self._uid

    async def _see(self, pod: dict[str, Any]) -> None:
        """Take what the watch tells, unless it repeats what came before a list."""
        if self._pod is not None and version_of(pod) < version_of(self._pod):
            return
        async with self._changed:
            self._pod = pod
            self._changed.notify_all()

    async def _lose(self) -> None:
        logger.warning("Pod %s/%s is gone from the Kubernetes API.", self.namespace, self.name)
        self.gone = True


def _is_expired(fault: Exception) -> bool:
    """Whether the server no longer knows our resource version."""
    return isinstance(fault, ApiRefusal) and fault.status == HTTPStatus.GONE


def _like(error: ClusterError, words: str) -> ClusterError:
    """A ClusterError with other words."""
    new = ClusterError(words)
    new.retry_after = error.retry_after
    return new


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the Kubernetes API is silent"
    return str(error) or type(error).__name__
