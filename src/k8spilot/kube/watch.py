"""The pilot's own pod: followed by one watch, changed by one kind of patch."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar

import aiohttp
from kubernetes.aio.client import ApiClient, CoreV1Api
from kubernetes.aio.client.exceptions import ApiException

from k8spilot.errors import ClusterError, ClusterRefused

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WATCH_SECONDS: Final = (240, 300)
"""The server ends a watch after a time drawn from here, so that pilots do not come back all at once."""
_BACK_OFF_SECONDS: Final = (0.2, 30.0)
_REQUEST_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 100.0
"""The server sends a bookmark about once a minute; a watch that is quiet for longer is a connection that has died."""
_DEFINITE: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Statuses of a PATCH that do not change when it is tried again."""
_LINE_LIMIT: Final = 8 * 1024 * 1024
"""A pod is at most 1.5 MiB in etcd, its JSON somewhat more."""


class _Expired(Exception):
    """The server no longer knows our resource version (410 Gone): list again."""


class OwnPod:
    """The pod that this process runs in.

    `follow` keeps it current; everything else waits for what it sees.
    """

    def __init__(self, api: ApiClient, namespace: str, name: str) -> None:
        self._core = CoreV1Api(api)
        self.namespace = namespace
        self.name = name
        self.gone = False
        self.requests = 0
        """API requests made so far, the watch's own included."""
        self._pod: dict[str, Any] | None = None
        self._changed = asyncio.Condition()
        self._patching = asyncio.Lock()
        """Patches arrive in the order in which they are made."""

    @property
    def pod(self) -> dict[str, Any]:
        """The pod as last seen, in the API's JSON.

        Raises:
            ClusterError: it has not been seen yet.
        """
        if self._pod is None:
            raise ClusterError(f"pod {self.namespace}/{self.name} has not been read from the Kubernetes API yet")
        return self._pod

    async def until(self, look: Callable[[dict[str, Any]], T | None]) -> T:
        """Wait until `look` finds something in the pod, and return that. The caller sets the time limit."""
        async with self._changed:
            while True:
                if self._pod is not None and (found := look(self._pod)) is not None:
                    return found
                await self._changed.wait()

    async def set_image(self, container: str, image: str) -> None:
        """Ask for another image of the native sidecar `container`. Returns when the API server has taken it.

        Raises:
            ClusterRefused: it never will: no right to it, a policy, an invalid reference.
            ClusterError: it did not this time.
        """
        self.requests += 1
        body = {"spec": {"initContainers": [{"name": container, "image": image}]}}
        try:
            async with self._patching, asyncio.timeout(_REQUEST_SECONDS):
                response = await self._core.patch_namespaced_pod_without_preload_content(
                    self.name, self.namespace, body, _content_type="application/strategic-merge-patch+json"
                )
                async with response:
                    if response.status != HTTPStatus.OK:
                        kind = ClusterRefused if response.status in _DEFINITE else ClusterError
                        raise kind(
                            f"the Kubernetes API refused to change the image of container {container} in pod "
                            f"{self.namespace}/{self.name}: {_message(await response.text())}"
                        )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ClusterError(
                f"the Kubernetes API did not take a change of pod {self.namespace}/{self.name} "
                f"({_words(error)}); it may be away for a moment"
            ) from error

    async def follow(self) -> None:
        """List and watch until the pod is gone. Comes back from every failure, later each time."""
        wait = _BACK_OFF_SECONDS[0]
        while not self.gone:
            try:
                version = await self._list()
                wait = _BACK_OFF_SECONDS[0]
                while not self.gone:
                    version = await self._watch(version)
            except _Expired:
                logger.info("The watch of the own pod has expired; listing again.")
            except (
                ApiException,
                aiohttp.ClientError,
                OSError,
                TimeoutError,
                ClusterError,
                ValueError,
            ) as error:
                pause = random.uniform(wait / 2, wait)  # noqa: S311 -- spreads load, hides nothing
                logger.warning("The own pod cannot be watched (%s); trying again in %.1f s.", _words(error), pause)
                await asyncio.sleep(pause)
                wait = min(wait * 2, _BACK_OFF_SECONDS[1])

    async def _list(self) -> str:
        self.requests += 1
        async with asyncio.timeout(_REQUEST_SECONDS):
            response = await self._core.list_namespaced_pod_without_preload_content(
                self.namespace, field_selector=f"metadata.name={self.name}"
            )
            async with response:
                text = await response.text()
                if response.status != HTTPStatus.OK:
                    raise ClusterError(f"listing answered {response.status}: {_message(text)}")
        answer = json.loads(text)
        if answer["items"]:
            await self._see(answer["items"][0])
        else:
            await self._lose()
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        """Follow events from `version` on; return the last version seen when the server ends the watch."""
        self.requests += 1
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 -- spreads load, hides nothing
        response = await self._core.list_namespaced_pod_without_preload_content(
            self.namespace,
            field_selector=f"metadata.name={self.name}",
            watch=True,
            resource_version=version,
            timeout_seconds=seconds,
            allow_watch_bookmarks=True,
            _request_timeout=seconds + _REQUEST_SECONDS,
        )
        async with response:
            if response.status == HTTPStatus.GONE:
                raise _Expired
            if response.status != HTTPStatus.OK:
                raise ClusterError(f"watching answered {response.status}: {_message(await response.text())}")
            async for line in _lines(response.content):
                event = json.loads(line)
                seen = event["object"]
                if event["type"] == "ERROR":
                    if seen.get("code") == HTTPStatus.GONE:
                        raise _Expired
                    raise ClusterError(f"the watch ended: {seen.get('message')}")
                version = seen["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    await self._lose()
                    break  # the server would keep the watch open
                if event["type"] != "BOOKMARK":
                    await self._see(seen)
        return version

    async def _see(self, pod: dict[str, Any]) -> None:
        async with self._changed:
            self._pod = pod
            self._changed.notify_all()

    async def _lose(self) -> None:
        logger.warning("Pod %s/%s is gone from the Kubernetes API.", self.namespace, self.name)
        self.gone = True


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a watch, of any length up to `_LINE_LIMIT` (readline has a limit of its own, far lower)."""
    rest = b""
    while True:
        async with asyncio.timeout(_SILENCE_SECONDS):
            chunk = await content.readany()
        if not chunk:
            return
        rest += chunk
        *whole, rest = rest.split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > _LINE_LIMIT:
            raise ClusterError("the Kubernetes API sent an event of more than 8 MiB")


def _message(text: str) -> str:
    """The sentence in a Status object (meta/v1), or the text itself."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:500]


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
