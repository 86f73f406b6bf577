"""The Kubernetes API, as far as the provisioner uses it, by the official client.

Objects are plain dictionaries: a thousand pods of the client's classes take a hundred MiB.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config

from k8spilot.common.errors import ClusterError, SettingsError
from k8spilot.kube import watch_stream
from k8spilot.kube.backoff import BackOff
from k8spilot.kube.client import ApiRefusal
from k8spilot.kube.pod import version_of

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Query = Sequence[tuple[str, str | int]]

_GROUPS: Final = {
    "cronjobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
}
"""Paths of API groups, by resource; others are in the core API."""
_PAGE: Final = 500
"""Objects of one answer."""
_REQUEST_SECONDS: Final = 30.0
"""Limit of a request."""
_WATCH_SECONDS: Final = 300
"""Seconds after which the API server ends a watch, and another one follows."""
_BACK_OFF_SECONDS: Final = (1.0, 30.0)
_REMEMBERED: Final = 1000
"""Deleted objects whose versions are remembered at the least."""


class NamespaceClient:
    """Client of the Kubernetes API for the objects of one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def path(self, resource: str, name: str = "") -> str:
        """Return the path of objects in the namespace, such as `pods`, or of one of them."""
        group = _GROUPS.get(resource, "/api/v1")
        return f"{group}/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")

    async def request(self, method: str, path: str, query: Query = (), body: Json | None = None) -> Json:
        """Send a request, and return the object in the answer. A PATCH is a merge patch (RFC 7386).

        Raises:
            ApiRefusal: the API server refuses.
            ClusterError: there is no answer.
        """
        limit = aiohttp.ClientTimeout(_REQUEST_SECONDS)
        async with self.answer(method, path, query=query, body=body, limit=limit) as answer:
            return _parsed(await answer.read())

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, *, limit: aiohttp.ClientTimeout, query: Query = (), body: Json | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and yield the answer, whose content is still to be read.

        Raises:
            ApiRefusal: the API server refuses.
            ClusterError: there is no answer.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        try:
            asked = await self.api.param_serialize(
                method,
                path,
                query_params=list(query),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            found = (await self.api.call_api(*asked, _request_timeout=limit)).response
            try:
                if found.status >= HTTPStatus.BAD_REQUEST:
                    status = _parsed(await found.read())
                    message = str(status.get("message") or found.reason)
                    raise ApiRefusal(found.status, message, reason=str(status.get("reason", "")))
                yield found
            finally:
                found.close()
        except TimeoutError:
            raise ClusterError("the API server did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterError(f"the API server cannot be reached ({error})") from error


@asynccontextmanager
async def connect(namespace: str) -> AsyncIterator[NamespaceClient]:
    """Connect as the pod's service account, or else with the user's kubeconfig.

    Raises:
        SettingsError: there are no credentials.
    """
    configuration = client.Configuration()
    configuration.retries = None  # the next turn asks again
    try:
        config.load_incluster_config(configuration)
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            raise SettingsError(
                f"there are no credentials for a Kubernetes cluster ({error}); run it in a pod with a service account, "
                "or set KUBECONFIG"
            ) from None
    async with client.ApiClient(configuration) as api:
        yield NamespaceClient(api, namespace)


class Reflector[Value]:
    """A copy of all objects of one kind with some labels, kept up to date by one watch.

    The engine has a reflector of its own (kube/reflector.py), on its own client: for one pod, with waits for changes of
    it, and with random pauses that spread the watches of all pilots. This one lists in pages, and takes over what
    requests return before the watch does. The two have the form of the watch in common (kube/watch_stream.py).
    """

    def __init__(
        self, cluster: NamespaceClient, resource: str, selector: str, read: Callable[[Json], Value | None]
    ) -> None:
        """Initialize without I/O.

        Args:
            cluster: the cluster.
            resource: the objects' name in paths, such as `pods`.
            selector: labels of the objects.
            read: makes a value of an object; None for one that is to be left out.
        """
        self._cluster = cluster
        self._resource = resource
        self._selector = selector
        self._read = read
        self.objects: dict[str, Value] = {}
        """The values by the objects' names."""
        self._taken: dict[str, Json] = {}
        """Objects that requests have returned since the last list began."""
        self._versions: dict[str, int] = {}
        """The latest versions seen since the last list, those of deleted objects included."""
        self.fault = "the API server has not answered yet"
        """Why the copy may be old; empty while the watch runs."""
        self._back_off = BackOff(*_BACK_OFF_SECONDS)
        self._has_bookmarks = False
        """Whether the server sends bookmarks. One without a watch cache does not: its watches are silent for long."""
        self.listed = asyncio.Event()
        """Set once there is a first copy."""
        self.listed_at = -math.inf
        """Time of the latest list, by the monotonic clock."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        version = ""
        while True:
            try:
                version = version or await self.relist()
                async for latest in self._watch(version):
                    version = latest
            except (ClusterError, TimeoutError, ValueError) as error:
                self.fault = "the API server did not answer in time" if isinstance(error, TimeoutError) else str(error)
                if isinstance(error, ApiRefusal) and error.status == HTTPStatus.GONE:
                    version = ""  # it is too old for a watch; other refusals may pass
                seconds = self._back_off.delay(error)
                logger.warning(
                    "The watch of %s fails: %s; trying again in %.0f s.", self._resource, self.fault, seconds
                )
                await asyncio.sleep(seconds)

    def take(self, found: Json) -> None:
        """Take over an object that a request has returned, before the watch tells of it."""
        self._taken[found["metadata"]["name"]] = found
        self._store(found)

    def drop(self, name: str) -> None:
        """Forget an object that the API server does not have any more."""
        self.objects.pop(name, None)

    async def relist(self) -> str:
        """Make a new copy; return its version.

        Raises:
            ClusterError: the API server does not answer or refuses.
        """
        objects: dict[str, Value] = {}
        versions: dict[str, int] = {}
        after, version = "", ""
        began = time.monotonic()
        self._taken.clear()
        while True:
            query: Query = [("labelSelector", self._selector), ("limit", _PAGE), ("continue", after)]
            page = await self._cluster.request("GET", self._cluster.path(self._resource), query)
            for found in page.get("items") or ():
                if (value := self._read(found)) is not None:
                    objects[found["metadata"]["name"]] = value
                    versions[found["metadata"]["name"]] = version_of(found)
            version, after = str(page["metadata"]["resourceVersion"]), str(page["metadata"].get("continue") or "")
            if not after:
                break
        self.objects, self.fault = objects, ""
        self._versions = versions  # a watch that goes on meanwhile may be behind
        for name, found in self._taken.items():  # created after the list began
            if name not in objects:
                self._store(found)
        self.listed_at = began
        self.listed.set()
        return version

    async def _watch(self, version: str) -> AsyncIterator[str]:
        """Follow changes; yield the version after each. Ends when the API server ends the watch."""
        query: Query = [
            ("labelSelector", self._selector),
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", _WATCH_SECONDS),
        ]
        path = self._cluster.path(self._resource)
        opened = self._cluster.answer("GET", path, query=query, limit=aiohttp.ClientTimeout())
        async with AsyncExitStack() as parts:
            async with asyncio.timeout(_REQUEST_SECONDS):  # the headers come at once, or never
                answer = await parts.enter_async_context(opened)
            self.fault = ""
            self._back_off.reset()
            self._taken.clear()
            async for event in watch_stream.events(answer.content, self._longest_silence):
                found = event["object"]
                if event["type"] == "DELETED":
                    self._forget(found)
                elif event["type"] == "BOOKMARK":
                    self._has_bookmarks = True
                else:
                    self._store(found)
                yield found["metadata"]["resourceVersion"]

    def _forget(self, found: Json) -> None:
        """Drop a deleted object, unless a later one of its name has been seen."""
        name, version = found["metadata"]["name"], version_of(found)
        if version >= self._versions.get(name, 0):
            self._versions[name] = version
            self.drop(name)

    def _longest_silence(self) -> float:
        return watch_stream.longest_silence(_WATCH_SECONDS, has_bookmarks=self._has_bookmarks)

    def _store(self, found: Json) -> None:
        """Store an object, unless a later version of it, or its deletion, has been seen."""
        name, version = found["metadata"]["name"], version_of(found)
        if version < self._versions.get(name, 0):
            return
        self._versions[name] = version
        if (value := self._read(found)) is None:
            self.drop(name)
        else:
            self.objects[name] = value
        if len(self._versions) > 2 * len(self.objects) + _REMEMBERED:
            self._versions = {one: seen for one, seen in self._versions.items() if one in self.objects}


def _parsed(body: bytes) -> Json:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def owner_of(template: Json) -> Mapping[str, object]:
    """Return the owner reference of pilots: the template's CronJob, which is their controller."""
    metadata = template["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
