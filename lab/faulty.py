"""A registry that behaves badly on demand: a proxy before a good one, in a thread of the process that uses it."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from lab.errors import LabError
from lab.settings import NODE_ADDRESS

T = TypeVar("T")

MANIFESTS: Final = r"/v2/.+/manifests/.*"
BLOBS: Final = r"/v2/.+/blobs/.*"
ALL: Final = r".*"

_PIECE: Final = 16 * 1024
_API_VERSION: Final = {"Docker-Distribution-Api-Version": "registry/2.0"}
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host"})


@dataclass(frozen=True)
class Fault:
    """What happens to requests; what is not given goes as it should."""

    path: str = ALL
    """Regular expression for the whole path of the requests that it happens to."""
    status: int = 0
    """Answered in place of the registry's own answer, with `error` in the body as registries do."""
    error: tuple[str, str] = ("UNKNOWN", "the registry is told to fail")
    """Code and message (OCI distribution specification, error codes)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the answer begins."""
    rate: float = 0.0
    """Bytes a second of the answer's body; 0: as fast as can be."""
    cut: bool = False
    """The connection is cut: at once, or in the middle of a body."""
    agent: str = ""
    """Only for clients whose User-Agent begins so: `containerd`, `skopeo`."""
    hang: bool = False
    """There is no answer until other faults, or none, are set; then it is as it should be."""

    def concerns(self, path: str, agent: str) -> bool:
        """Whether it happens to a request for `path` by the client `agent`."""
        return re.fullmatch(self.path, path) is not None and agent.startswith(self.agent)


@dataclass(frozen=True)
class Request:
    """One that was made to the registry."""

    at: float
    """When it came (time.monotonic)."""
    method: str
    path: str
    agent: str
    """The client: `containerd/...`, `skopeo/...`."""


class FaultyRegistry:
    """A proxy on a port of its own. Made by `serve`; its methods return when what they ask for is so."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._faults: tuple[Fault, ...] = ()
        self._site: web.TCPSite | None = None
        self._port = 0
        self._over = asyncio.Event()
        """Set when the present faults are none any more."""
        self.requests: list[Request] = []
        """All that was asked, in order."""

    @property
    def address(self) -> str:
        """host:port."""
        return f"{NODE_ADDRESS}:{self._port}"

    def fails(self, *faults: Fault) -> None:
        """From now on these faults happen, the first whose path matches; none others."""
        self._do(self._set(faults))

    def is_well(self) -> None:
        """From now on no fault happens, and connections are taken."""
        self._do(self._set(()))
        self.comes_back()

    def asked(self, path: str = ALL, agent: str = "") -> list[Request]:
        """Requests so far whose path matches, by a client whose name begins with `agent`."""
        found = [one for one in self.requests if re.fullmatch(path, one.path)]
        return [one for one in found if one.agent.startswith(agent)]

    def goes_away(self) -> None:
        """From now on connections are refused; those that are open are cut."""
        self._do(self._stop_listening())

    def comes_back(self) -> None:
        """From now on connections are taken."""
        self._do(self._listen())

    def run(self, ready: "Future[None]") -> None:
        """The thread: serve until `end`."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begin())
        except BaseException as problem:
            ready.set_exception(problem)
            raise
        ready.set_result(None)
        self._loop.run_forever()
        self._loop.close()

    def end(self) -> None:
        """Stop serving, and let the thread end."""
        self._do(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _set(self, faults: tuple[Fault, ...]) -> None:
        self._over.set()
        self._over = asyncio.Event()
        self._faults = faults

    async def _begin(self) -> None:
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        application = web.Application(client_max_size=2**32)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await self._listen()

    async def _finish(self) -> None:
        await self._runner.cleanup()
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _listen(self) -> None:
        if self._site is not None:
            return
        self._site = web.TCPSite(self._runner, NODE_ADDRESS, self._port, reuse_address=True)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop_listening(self) -> None:
        if self._site is None:
            return
        await self._site.stop()
        self._site = None
        assert self._runner.server is not None
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        agent = request.headers.get("User-Agent", "")
        self.requests.append(Request(time.monotonic(), request.method, request.path, agent))
        fault = next((one for one in self._faults if one.concerns(request.path, agent)), Fault())
        if fault.hang:
            await self._over.wait()
        await asyncio.sleep(fault.delay)
        if fault.status:
            code, message = fault.error
            body = {"errors": [{"code": code, "message": message, "detail": None}]}
            return web.json_response(body, status=fault.status, headers={**_API_VERSION, **fault.headers})
        async with self._client.request(
            request.method,
            f"http://{self._upstream}{request.path_qs}",
            headers=_end_to_end(request.headers),
            data=request.content if request.can_read_body else None,
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            with contextlib.suppress(ConnectionError):
                await _pass_on(request, answer, response, fault)
            return response


async def _pass_on(
    request: web.Request, answer: aiohttp.ClientResponse, response: web.StreamResponse, fault: Fault
) -> None:
    if fault.cut and request.method == "HEAD":
        _cut(request)
    await response.prepare(request)
    async for piece in answer.content.iter_chunked(_PIECE):
        await response.write(piece[: len(piece) // 2] if fault.cut else piece)
        if fault.cut:
            await asyncio.sleep(0.1)  # what was written goes out, so that the cut is in the middle
            _cut(request)
        if fault.rate:
            await asyncio.sleep(len(piece) / fault.rate)
    await response.write_eof()


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)


@contextmanager
def serve(upstream: str) -> Iterator[FaultyRegistry]:
    """Serve a proxy before the registry at `upstream` (host:port) that fails when it is told to.

    Raises:
        LabError: it cannot listen.
    """
    registry = FaultyRegistry(upstream)
    ready: Future[None] = Future()
    thread = threading.Thread(target=registry.run, args=(ready,), name="faulty registry", daemon=True)
    thread.start()
    try:
        ready.result(30)
    except OSError as problem:
        raise LabError(f"a faulty registry cannot listen on {NODE_ADDRESS}: {problem}") from problem
    try:
        yield registry
    finally:
        registry.end()
        thread.join(10)
