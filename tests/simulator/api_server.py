"""A Kubernetes API server for one pod, over real HTTP: list, watch, get, patch of an image, access reviews, Events."""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from k8spilot.common.aio import close_server
from k8spilot.model.quantity import quantity
from lab.ports import hold_port

Pod = dict[str, Any]
_PODS: Final = "/api/v1/namespaces/{namespace}/pods"
_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
_EVENTS: Final = "/api/v1/namespaces/{namespace}/events"


class ApiServer:
    """The server and the pod in it. Tests may look at `requests` and make it fail in the ways that the real one can."""

    def __init__(self, pod: Pod) -> None:
        self._pod: Pod | None = pod
        self._metadata = pod["metadata"]
        self._version = 1000
        self._events: list[tuple[int, str, Pod]] = []
        self._oldest = self._version
        self._changed = asyncio.Condition()
        self._watches: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self.requests: Counter[str] = Counter()
        """By verb: list, watch, get, patch, review; event."""
        self.allowed = {"get", "list", "watch", "patch"}
        """Verbs that access reviews grant."""
        self.others: dict[str, Pod] = {}
        """Other pods by name, for requests of one."""
        self.claims: dict[str, dict[str, Any]] = {}
        """ResourceClaims by name."""
        self.claim_refusals: list[tuple[int, str]] = []
        """Status and message with which the next requests for a ResourceClaim are refused, one each."""
        self.tells_of_others = asyncio.Event()
        self.tells_of_others.set()
        self.nonsense: Any = None
        """Answer to all requests for lists and Events, in place of the right one; None for the right one."""
        self.refusal: tuple[int, str] | None = None
        """Status and message with which patches are refused, if any."""
        self.insists = False
        """Whether patches that end the account of who manages the pod's fields are refused."""
        self.forbidden_annotation = ""
        """Annotation that no patch may set, if any."""
        self.forbidden_image = ""
        """Part of the images that no patch may set, if any."""
        self.patches: list[list[dict[str, Any]]] = []
        """The JSON patches that came."""
        self.resizes: list[list[dict[str, Any]]] = []
        """The JSON patches of the pod's resources that came."""
        self.resize_refusal: tuple[int, str] | None = None
        """Status and message with which changes of the pod's resources are refused, if any."""
        self.ephemeral_refusal: tuple[int, str] | None = None
        """Status and message with which ephemeral containers are refused, if any."""
        self.bookmarks = True
        """Whether watches have bookmarks."""
        self.watch_seconds: float | None = None
        """End watches earlier than they ask for."""
        self.told: dict[str, dict[str, Any]] = {}
        """The Events that were made, by name."""
        self.events_allowed = True
        self._runner: web.AppRunner | None = None
        pod["metadata"]["resourceVersion"] = str(self._version)
        pod["metadata"]["managedFields"] = [{"manager": "factory", "operation": "Update", "fieldsType": "FieldsV1"}]

    @property
    def url(self) -> str:
        """URL on which the server listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pod(self) -> Pod:
        """The pod as it is now; do not change it, use `update`."""
        assert self._pod is not None, "the pod has been deleted"
        return self._pod

    @property
    def deleted(self) -> bool:
        """Whether the pod has been deleted."""
        return self._pod is None

    async def update(self, change: Callable[[Pod], None]) -> None:
        """Change the pod; whoever watches gets to know."""
        async with self._changed:
            pod = copy.deepcopy(self.pod)
            change(pod)
            if pod["spec"] != self.pod["spec"]:
                pod["metadata"]["generation"] = pod["metadata"].get("generation", 1) + 1
            self._record("MODIFIED", pod)
            self._changed.notify_all()

    async def delete(self) -> None:
        """Delete the pod for good."""
        async with self._changed:
            self._record("DELETED", copy.deepcopy(self.pod))
            self._pod = None
            self._changed.notify_all()

    async def replace(self, uid: str) -> None:
        """Delete the pod, and make another one of its name."""
        next_one = copy.deepcopy(self.pod)
        await self.delete()
        async with self._changed:
            next_one["metadata"]["uid"] = uid
            self._record("ADDED", next_one)
            self._changed.notify_all()

    async def until(self, wanted: Callable[[Pod], bool], seconds: float = 20.0) -> Pod:
        """Wait until the pod is as `wanted`.

        Raises:
            TimeoutError: it does not come to be so.
        """
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: wanted(self.pod))
            return self.pod

    def _record(self, kind: str, pod: Pod) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._pod = pod
        self._events.append((self._version, kind, pod))

    # --- faults ---

    async def expire(self) -> None:
        """Forget the past (compaction): every watch ends with 410, and none can go on from where it was."""
        async with self._changed:
            self._version += 1
            self._oldest = self._version
            self._events.clear()
            self._changed.notify_all()

    def drop_watches(self) -> None:
        """Cut the connections of all watches, without a word."""
        for transport in list(self._watches):
            transport.abort()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Refuse connections, and cut those that are, for as long as the context lasts."""
        assert self._server is not None
        assert self._runner is not None
        assert self._runner.server is not None
        await close_server(self._server)
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        try:
            yield
        finally:
            await self._listen()

    # --- HTTP ---

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen on the loopback device."""
        app = web.Application()
        app.router.add_get(_PODS, self._list)
        app.router.add_get(_PODS + "/{name}", self._get)
        app.router.add_patch(_PODS + "/{name}", self._patch)
        app.router.add_patch(_PODS + "/{name}/ephemeralcontainers", self._add)
        app.router.add_patch(_PODS + "/{name}/resize", self._resize)
        app.router.add_get(_CLAIMS + "/{name}", self._get_claim)
        app.router.add_post(_EVENTS, self._tell)
        app.router.add_patch(_EVENTS + "/{name}", self._tell)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        self._runner = runner
        with hold_port() as held:
            self._port = held.getsockname()[1]
            await self._listen()
            try:
                yield
            finally:
                assert self._server is not None
                await close_server(self._server)
                self.drop_watches()
                await runner.cleanup()

    async def _listen(self) -> None:
        assert self._runner is not None
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._runner.server, "127.0.0.1", self._port, reuse_address=True)

    def _is_asked_for(self, request: web.Request) -> bool:
        metadata = self._metadata
        wanted = request.query.get("fieldSelector", f"metadata.name={metadata['name']}")
        return (
            request.match_info["namespace"] == metadata["namespace"] and wanted == f"metadata.name={metadata['name']}"
        )

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") in ("true", "True", "1"):
            return await self._watch(request)
        self.requests["list"] += 1
        if self.nonsense is not None:
            return web.json_response(self.nonsense)
        items = [self._pod] if self._pod is not None and self._is_asked_for(request) else []
        return web.json_response(
            {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(self._version)}, "items": items}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.requests["watch"] += 1
        response = web.StreamResponse(headers={"Content-Type": "application/json;stream=watch"})
        await response.prepare(request)
        transport = request.transport
        assert transport is not None
        self._watches.add(transport)
        try:
            if self.bookmarks:  # within the first minute in Kubernetes; at once here
                await _send_bookmark(response, int(request.query["resourceVersion"]))
            async with asyncio.timeout(self.watch_seconds or float(request.query["timeoutSeconds"])):
                await self._send_events(response, int(request.query["resourceVersion"]))
        except TimeoutError:
            if self.bookmarks:
                await _send_bookmark(response, self._version)
        except ConnectionError:
            return response  # the test has cut it, or the pilot has gone
        finally:
            self._watches.discard(transport)
        await response.write_eof()
        return response

    async def _send_events(self, response: web.StreamResponse, version: int) -> None:
        """Send what comes after `version`; return when that is not known any more."""
        while True:
            async with self._changed:
                while self._version <= version:
                    await self._changed.wait()
                fresh = [event for event in self._events if event[0] > version]
                expired = version < self._oldest
                version = self._version
            if expired:
                await _send(response, "ERROR", _status(410, "too old resource version"))
                return
            for _, kind, pod in fresh:
                await _send(response, kind, pod)

    async def _get(self, request: web.Request) -> web.Response:
        self.requests["get"] += 1
        if (other := self.others.get(request.match_info["name"])) is not None:
            await self.tells_of_others.wait()
            return web.json_response(other)
        if self._pod is None or request.match_info["name"] != self._pod["metadata"]["name"]:
            return web.json_response(_status(404, "pods not found"), status=404)
        return web.json_response(self._pod)

    async def _get_claim(self, request: web.Request) -> web.Response:
        self.requests["claim"] += 1
        if self.claim_refusals:
            status, message = self.claim_refusals.pop(0)
            return web.json_response(_status(status, message), status=status)
        if (claim := self.claims.get(request.match_info["name"])) is None:
            return web.json_response(_status(404, "resourceclaims not found"), status=404)
        return web.json_response(claim)

    async def _patch(self, request: web.Request) -> web.Response:
        self.requests["patch"] += 1
        if self.refusal is not None:
            return web.json_response(_status(*self.refusal), status=self.refusal[0])
        if request.content_type != "application/json-patch+json":
            return web.json_response(_status(415, "the body is not a JSON patch"), status=415)
        self.patches.append(changes := await request.json())
        if self.insists and _UNMANAGED in changes:
            return web.json_response(_status(403, "admission webhook: who manages fields is to be seen"), status=403)
        name, image = self.forbidden_annotation.replace("/", "~1"), self.forbidden_image
        if (name and any(name in one["path"] for one in changes)) or (
            image and any(image in str(one.get("value")) for one in changes)
        ):
            return web.json_response(_status(403, "ValidatingAdmissionPolicy denied request"), status=403)
        try:
            await self.update(_patched(changes))
        except _Unprocessable as error:
            return web.json_response(_status(422, str(error)), status=422)
        return web.json_response(self.pod)

    async def _resize(self, request: web.Request) -> web.Response:
        """Change containers' resources; together they request no more than the pod."""
        self.requests["resize"] += 1
        if self.resize_refusal is not None:
            return web.json_response(_status(*self.resize_refusal), status=self.resize_refusal[0])
        self.resizes.append(changes := await request.json())
        try:
            if request.query.get("dryRun") == "All":
                resized(changes)(copy.deepcopy(self.pod))
                return web.json_response(self.pod)
            await self.update(resized(changes))
        except _Unprocessable as error:
            return web.json_response(_status(422, str(error)), status=422)
        return web.json_response(self.pod)

    async def _add(self, request: web.Request) -> web.Response:
        """Add ephemeral containers: one that is there already must be the same (a strategic merge by name)."""
        self.requests["ephemeral"] += 1
        if self.ephemeral_refusal is not None:
            return web.json_response(_status(*self.ephemeral_refusal), status=self.ephemeral_refusal[0])
        if request.content_type != "application/strategic-merge-patch+json":
            return web.json_response(_status(415, "not a strategic merge patch"), status=415)
        body = await request.json()
        if body["metadata"]["uid"] != self.pod["metadata"]["uid"]:
            return web.json_response(_status(409, "the uid in the precondition is another"), status=409)
        try:
            await self.update(_extended(body["spec"]["ephemeralContainers"]))
        except _Unprocessable as error:
            return web.json_response(_status(422, str(error)), status=422)
        return web.json_response(self.pod)

    async def _tell(self, request: web.Request) -> web.Response:
        """Make an Event, or change one."""
        self.requests["event"] += 1
        if not self.events_allowed:
            return web.json_response(_status(403, "events is forbidden"), status=403)
        if self.nonsense is not None:
            return web.json_response(self.nonsense)
        if request.method == "PATCH" and request.content_type != "application/merge-patch+json":
            return web.json_response(
                _status(400, "error decoding patch"), status=400
            )  # the body is none of a JSON patch
        body = await request.json()
        name = request.match_info.get("name") or body["metadata"]["name"]
        if request.method == "PATCH" and name not in self.told:
            return web.json_response(_status(404, f'events "{name}" not found'), status=404)
        if request.method == "POST" and name in self.told:
            return web.json_response(_status(409, f'events "{name}" already exists'), status=409)
        self.told[name] = {**self.told.get(name, {}), **body}
        return web.json_response(self.told[name], status=201 if request.method == "POST" else 200)

    async def _review(self, request: web.Request) -> web.Response:
        self.requests["review"] += 1
        body = await request.json()
        verb = body["spec"]["resourceAttributes"]["verb"]
        return web.json_response({**body, "status": {"allowed": verb in self.allowed}}, status=201)


_UNMANAGED = {"op": "add", "path": "/metadata/managedFields", "value": [{}]}


class _Unprocessable(Exception):
    """A patch that cannot be applied."""


def _patched(changes: list[dict[str, Any]]) -> Callable[[Pod], None]:
    """Return the change that a JSON patch of images makes (RFC 6902; the real one is evanphx/json-patch)."""

    def change(pod: Pod) -> None:
        for one in changes:
            if one["op"] == "test" and one["path"] == "/metadata/uid":
                if pod["metadata"]["uid"] != one["value"]:
                    raise _Unprocessable("the server rejected our request due to an error in our request")
                continue
            if one == _UNMANAGED:
                pod["metadata"].pop("managedFields", None)
                continue
            _, *path, last = one["path"].split("/")
            if one["path"].startswith("/metadata/annotations"):
                _annotate(pod["metadata"], last, one["value"])
                continue
            if path[:2] != ["spec", "initContainers"] or last != "image":
                raise _Unprocessable("pod updates may not change fields other than image")
            container = pod["spec"]["initContainers"][int(path[2])]
            if one["op"] == "test" and container["image"] != one["value"]:
                raise _Unprocessable("the server rejected our request due to an error in our request")
            if one["op"] == "replace":
                container["image"] = one["value"]

    return change


def resized(changes: list[dict[str, Any]]) -> Callable[[Pod], None]:
    """Return the change that a JSON patch of pods/resize makes to a pod (RFC 6902)."""

    def change(pod: Pod) -> None:
        for one in changes:
            *path, last = one["path"].split("/")[1:]
            part: Any = pod
            for step in path:
                part = part[int(step)] if isinstance(part, list) else part[step]
            if one["op"] == "test":
                if part[last] != one["value"]:
                    raise _Unprocessable("the server rejected our request due to an error in our request")
            elif "resources" in path and last in ("cpu", "memory"):
                part[last] = one["value"]
            else:
                raise _Unprocessable("only cpu and memory resources are mutable")
        requests = (pod["spec"].get("resources") or {}).get("requests") or {}
        for name in requests.keys() & {"cpu", "memory"}:
            whole = quantity(requests[name])
            taken = sum(
                quantity(one["resources"]["requests"][name])
                for one in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
                if one["name"] != "install"
            )
            if taken > whole * (1 + 1e-9):
                raise _Unprocessable(f"must be greater than or equal to aggregate container requests of {taken:g}")

    return change


def _annotate(metadata: dict[str, Any], last: str, value: Any) -> None:
    if last == "annotations":
        metadata["annotations"] = value
    elif metadata.get("annotations") is None:
        raise _Unprocessable("the server rejected our request due to an error in our request")
    else:
        metadata["annotations"][last.replace("~1", "/")] = value


def _extended(containers: list[dict[str, Any]]) -> Callable[[Pod], None]:
    """Return the change that a patch of ephemeral containers makes."""

    def change(pod: Pod) -> None:
        there = pod["spec"].setdefault("ephemeralContainers", [])
        for one in containers:
            same = next((old for old in there if old["name"] == one["name"]), None)
            if same is not None and same != one:
                raise _Unprocessable("existing ephemeral containers may not be changed")
            if same is None:
                there.append(one)

    return change


async def _send_bookmark(response: web.StreamResponse, version: int) -> None:
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}
    await _send(response, "BOOKMARK", bookmark)


async def _send(response: web.StreamResponse, kind: str, item: dict[str, Any]) -> None:
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
