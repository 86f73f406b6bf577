"""Current copy of one pod by list and watch: a reflector, in client-go's word (tools/cache/reflector.go).

An API server can be unavailable, slow, or lose its answers at any moment. Silence is never taken for a result: a watch
restarts from its last position, with growing pauses.

The SharedInformer of the `kubernetes` package (37) runs in a thread, with the synchronous client, whose memory is too
much for this process (kube/client.py), and its pauses do not grow.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from k8spilot.common.aio import is_set_within
from k8spilot.common.errors import ClusterError
from k8spilot.kube import watch_stream
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.kube.connectivity import Connectivity
from k8spilot.kube.pod import version_of
from k8spilot.kube.watch_pace import NEED_SECONDS, WatchPace, is_expired

logger = logging.getLogger(__name__)

_WATCH_SECONDS: Final = (240, 300)
"""Range of a watch's length in seconds. It is random, so that pilots do not return all at once."""
REQUEST_SECONDS: Final = 30.0
"""Limit of one request, in seconds."""
_OF_THE_SERVER: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals of a watch, besides those of 500 and more, that are not about its resource version."""
_FROM_THE_FUTURE: Final = "Too large resource version"
"""Refusal of a server whose etcd was restored, and which does not know our version yet (504; apiserver,
storage/errors.go)."""


class PodReflector:
    """Last known state of one pod. `follow` keeps it current; all other methods use it."""

    def __init__(self, api: Api, namespace: str, name: str, uid: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        self.gone = False
        self.connectivity = Connectivity(lambda: api.heard)
        """Faults of its watch and of its changes."""
        self._uid = uid
        """uid of the pod: another pod of the same name may exist while a disconnected node still runs this one."""
        self._pod: dict[str, Any] | None = None
        self._version = ""
        """Resource version of the watch; empty if the pod has to be listed first."""
        self._has_bookmarks = False
        """Whether the server sends bookmarks. One without a watch cache does not: its watches are silent for long."""
        self._changed = asyncio.Condition()
        """Notifies changes of the pod."""
        self._answered = asyncio.Event()
        """Set when the API server has answered, which is a reason to restart the watch now."""
        self._asked = -NEED_SECONDS
        """Time of the last request for a change (the event loop's clock, seconds)."""

    @property
    def path(self) -> str:
        """Path of the pods of its namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def pod(self) -> dict[str, Any]:
        """Last view of the pod, in the API's JSON.

        Raises:
            ClusterError: the pod has not been read yet.
        """
        if self._pod is None:
            raise ClusterError(f"pod {self.namespace}/{self.name} has not been read from the Kubernetes API yet")
        return self._pod

    @property
    def uid(self) -> str:
        """Unique id of the pod; empty if it is neither set nor seen."""
        return self._uid

    @property
    def has_pod(self) -> bool:
        """Whether the pod has been read at all."""
        return self._pod is not None

    async def until[T](self, find: Callable[[dict[str, Any]], T | None]) -> T:
        """Wait until `find` returns a value for the pod, and return that. The caller sets the time limit."""
        async with self._changed:
            while True:
                if self._pod is not None and (found := find(self._pod)) is not None:
                    return found
                await self._changed.wait()

    async def refresh(self) -> None:
        """Read the pod, for callers that must know that the watch did not miss a change.

        Raises:
            ClusterError: the request failed.
        """
        await self._list()
        self.watch_now()

    def expect_change(self) -> None:
        """Record that a change is requested now, whose outcome matters."""
        self._asked = asyncio.get_running_loop().time()

    def watch_now(self) -> None:
        """Restart a lost watch now, because the API server has answered another request."""
        self._answered.set()

    async def run(self) -> None:
        """List and watch until the pod is gone. Repeat after every failure, with growing pauses."""
        loop = asyncio.get_running_loop()
        pace = WatchPace()
        while not self.gone:
            began = loop.time()
            fault: Exception | None = None
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (ClusterError, aiohttp.ClientError, OSError) as error:
                fault = error
                if isinstance(error, ApiRefusal) and _is_of_the_version(error):
                    self._version = ""
            except Exception as error:  # no answer of a server may end the engine
                logger.warning("The Kubernetes API sent an invalid event of a pod's watch.", exc_info=error)
                self._version = ""
                fault = error
            now = loop.time()
            seconds = pace.pause(fault, lasted=now - began, since_change=now - self._asked)
            if seconds and not self.gone:
                await self._pause(fault, seconds)

    async def _pause(self, fault: Exception | None, seconds: float) -> None:
        """Wait before the next watch; shorten the wait when another request shows that the server is available."""
        if fault is None or is_expired(fault):
            logger.info("The watch of the own pod has ended; watching again in %.1f s.", seconds)
        else:
            logger.warning("The own pod cannot be watched (%s); trying again in %.1f s.", _words(fault), seconds)
            await self.connectivity.note("watch", f"the own pod cannot be watched: {_words(fault)}")
        if getattr(fault, "retry_after", None):
            await asyncio.sleep(seconds)
            return
        self._answered.clear()
        await is_set_within(self._answered, seconds)

    async def _list(self) -> None:
        """Read the pod. The watch starts from here if it has no position."""
        answer = await self.api.read("list", self.path, query={"fieldSelector": f"metadata.name={self.name}"})
        try:
            found = next((item for item in answer["items"] if self._is_own(item)), None)
            here = str(answer["metadata"]["resourceVersion"])
        except (LookupError, TypeError) as error:
            raise ClusterError("the Kubernetes API's answer is not a list of pods") from error
        if found is None:
            await self._lose()
            raise ClusterError(f"pod {self.namespace}/{self.name} is gone")
        if self._version:  # the watch continues, and may be ahead
            await self._store(found)
            return
        async with self._changed:
            self._pod = found  # even an older one: the last view may be from an etcd that was replaced
            self._changed.notify_all()
        self._version = here

    async def _watch(self) -> None:
        """Follow events from the known version on, until the server ends the watch."""
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 -- spreads load, hides nothing

        def silence() -> float:
            return watch_stream.longest_silence(seconds, has_bookmarks=self._has_bookmarks)

        query = {
            "fieldSelector": f"metadata.name={self.name}",
            "watch": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }
        async with self._opened(query) as response:
            await self.connectivity.note("watch", "")
            async for event in watch_stream.events(response.content, silence):
                self.api.record_message()
                seen = event["object"]
                self._version = seen["metadata"]["resourceVersion"]
                self._has_bookmarks = self._has_bookmarks or event["type"] == "BOOKMARK"
                if event["type"] == "DELETED" or (event["type"] != "BOOKMARK" and not self._is_own(seen)):
                    await self._lose()
                    return  # the server would keep the watch open
                if event["type"] != "BOOKMARK":
                    await self._store(seen)

    @asynccontextmanager
    async def _opened(self, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open the answer to a watch. Its headers come at once or never; `events` waits for its events."""
        async with AsyncExitStack() as parts:
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await parts.enter_async_context(self.api.open("watch", self.path, query=query))
            yield response

    def _is_own(self, pod: dict[str, Any]) -> bool:
        uid = str(pod["metadata"]["uid"])
        self._uid = self._uid or uid
        return uid == self._uid

    async def _store(self, pod: dict[str, Any]) -> None:
        """Store the watch's view, unless it is older than that of a list."""
        if self._pod is not None and version_of(pod) < version_of(self._pod):
            return
        async with self._changed:
            self._pod = pod
            self._changed.notify_all()

    async def _lose(self) -> None:
        logger.warning("Pod %s/%s is gone from the Kubernetes API.", self.namespace, self.name)
        self.gone = True


def _is_of_the_version(error: ApiRefusal) -> bool:
    """Return whether the pod has to be listed again. An overloaded server gets no additional requests."""
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _FROM_THE_FUTURE in str(error)
    return error.status not in _OF_THE_SERVER


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the Kubernetes API is silent"
    return str(error) or type(error).__name__
