"""A server with faults on demand: a proxy in front of a real server, in a thread of the process that uses it.

`FaultyRegistry` is such a proxy for a registry; lab/faulty_api.py has one for the API server.
"""

import asyncio
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from lab.errors import LabError
from lab.ports import hold_port
from lab.settings import NODE_ADDRESS

MANIFESTS: Final = r"/v2/.+/manifests/.*"
BLOBS: Final = r"/v2/.+/blobs/.*"
ALL: Final = r".*"

_PIECE: Final = 16 * 1024
_API_VERSION: Final = {"Docker-Distribution-Api-Version": "registry/2.0"}
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host"})


@dataclass(frozen=True)
class Fault:
    """A fault of some requests. A field that is not set changes nothing."""

    path: str = ALL
    """Regular expression that the whole path of a request must match."""
    status: int = 0
    """Status of the answer, in place of the server's own answer. The body has `error`, as such servers send it."""
    error: tuple[str, str] = ("UNKNOWN", "the server is told to fail")
    """Code and message (OCI distribution specification, error codes); of an API server, reason and message."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the answer begins."""
    rate: float = 0.0
    """Bytes a second of the answer's body, until other faults, or none, are set; 0: no limit."""
    cut: bool = False
    """The connection is cut: at once, or in the middle of a body."""
    corrupt: bool = False
    """One byte of the body is changed."""
    short: bool = False
    """The body ends too early, and the headers agree with it."""
    agent: str = ""
    """Only for clients whose User-Agent begins with this text: `containerd`, `skopeo`."""
    hang: bool = False
    """There is no answer until other faults, or none, are set; then the usual answer comes."""
    silent: bool = False
    """The answer, also one that has begun, stops in the middle until other faults, or none, are set."""
    taken: bool = False
    """The upstream server gets the request first: status, delay and hang apply to its answer only."""
    times: int = 0
    """Number of requests that have this fault; 0: all."""
    verb: str = ""
    """Only for requests with this verb: an HTTP method, or the API server's verb."""
    token: str = ""
    """Only for requests with this bearer token."""

    def concerns(self, request: "Request") -> bool:
        """Return whether `request` can have this fault."""
        return (
            re.fullmatch(self.path, request.path) is not None
            and request.agent.startswith(self.agent)
            and self.verb in ("", request.verb)
            and self.token in ("", request.token)
        )


@dataclass(frozen=True)
class Request:
    """A request that was made to the server."""

    at: float
    """Time of its arrival (time.monotonic)."""
    method: str
    path: str
    agent: str = ""
    """The client: `containerd/...`, `skopeo/...`."""
    verb: str = ""
    token: str = ""
    """The bearer token."""


class FaultyServer:
    """A proxy on a port of its own, made by `serving`. Its methods return when their effect is in force."""

    def __init__(
        self,
        upstream: str,
        host: str = NODE_ADDRESS,
        *,
        tls: ssl.SSLContext | None = None,
        trust: ssl.SSLContext | bool = True,
    ) -> None:
        self.upstream = upstream
        """Scheme, host and port of the real server."""
        self._host = host
        self._tls = tls
        """TLS of the proxy itself; None: plain HTTP."""
        self._trust = trust
        """TLS authorities that the proxy trusts for the real server."""
        self._loop = asyncio.new_event_loop()
        self._faults: tuple[Fault, ...] = ()
        self._happened: Counter[int] = Counter()
        self._site: web.TCPSite | None = None
        self._port = 0
        self._over = asyncio.Event()
        """Set as soon as other faults, or none, replace the present ones."""
        self.requests: list[Request] = []
        """All requests, in order."""

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self._host}:{self._port}"

    def fails(self, *faults: Fault) -> None:
        """Set the faults, in place of all earlier ones. A request has the first fault that concerns it."""
        self._do(self._set(faults))

    def is_well(self) -> None:
        """Remove all faults, and accept connections."""
        self._do(self._set(()))
        self.comes_back()

    def asked(self, path: str = ALL, agent: str = "") -> list[Request]:
        """Return the requests so far whose path matches, by a client whose name begins with `agent`."""
        found = [one for one in self.requests if re.fullmatch(path, one.path)]
        return [one for one in found if one.agent.startswith(agent)]

    def goes_away(self) -> None:
        """Refuse connections from now on, and cut the open ones."""
        self._do(self._stop_listening())

    def cuts(self) -> None:
        """Cut all connections, once."""
        self._do(self._abort())

    def comes_back(self) -> None:
        """Accept connections from now on."""
        self._do(self._listen())

    def run(self, ready: "Future[None]") -> None:
        """Serve until `end`: the function of the thread."""
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

    def _do[T](self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _set(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._happened.clear()
        self._over.set()
        self._over = asyncio.Event()

    async def _begin(self) -> None:
        self._held = hold_port(self._host)
        self._port = self._held.getsockname()[1]
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        application = web.Application(client_max_size=2**32)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await self._listen()

    async def _finish(self) -> None:
        await self._runner.cleanup()
        self._held.close()
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _listen(self) -> None:
        if self._site is not None:
            return
        self._site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls, reuse_address=True)
        await self._site.start()

    async def _stop_listening(self) -> None:
        if self._site is None:
            return
        await self._site.stop()
        self._site = None
        await self._abort()

    async def _abort(self) -> None:
        assert self._runner.server is not None
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def verb(self, request: web.Request) -> str:
        """Return the kind of a request: here its method."""
        return request.method

    def refusal(self, fault: Fault) -> web.Response:
        """Return the answer that a failing server of this kind gives."""
        return web.json_response({"code": fault.error[0], "message": fault.error[1]}, status=fault.status)

    def _fault(self, request: Request) -> Fault:
        """Return the fault of this request, and count it; a fault without effect if none concerns it."""
        for number, fault in enumerate(self._faults):
            if fault.concerns(request) and (not fault.times or self._happened[number] < fault.times):
                self._happened[number] += 1
                return fault
        return Fault()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        known = Request(
            time.monotonic(),
            request.method,
            request.path,
            request.headers.get("User-Agent", ""),
            self.verb(request),
            request.headers.get("Authorization", "").removeprefix("Bearer "),
        )
        self.requests.append(known)
        fault = self._fault(known)
        body = await request.read()  # the client may have gone when it is wanted
        try:
            return await self._answer(request, known, body, fault)
        except aiohttp.ClientConnectionError:  # the server has gone
            _cut(request)
            return web.Response()

    async def _answer(self, request: web.Request, known: Request, body: bytes, fault: Fault) -> web.StreamResponse:
        if not fault.taken:
            await self._wait(fault)
            if fault.status:
                return self.refusal(fault)
        async with self._client.request(
            request.method,
            f"{self.upstream}{request.path_qs}",
            headers=_end_to_end(request.headers),
            data=body or None,
            allow_redirects=False,
            ssl=self._trust,
        ) as answer:
            if fault.taken:
                await self._wait(fault)
                if fault.status:
                    return self.refusal(fault)
            headers = _end_to_end(answer.headers)
            if fault.short and request.method != "HEAD":
                headers["Content-Length"] = str(int(headers.get("Content-Length", "0")) // 2)
            response = web.StreamResponse(status=answer.status, headers=headers)
            try:
                await self._pass_on(request, known, answer, response, fault)
            except (ConnectionError, aiohttp.ClientError):  # one of the two sides has gone
                _cut(request)
            return response

    async def _wait(self, fault: Fault) -> None:
        if fault.hang:
            await self._over.wait()
        await asyncio.sleep(fault.delay)

    async def _pass_on(
        self,
        request: web.Request,
        known: Request,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        fault: Fault,
    ) -> None:
        if fault.cut and request.method == "HEAD":
            _cut(request)
        await response.prepare(request)
        left = int(response.headers.get("Content-Length", "0")) if fault.short else 2**62
        size = max(1, min(_PIECE, int(fault.rate))) if fault.rate else _PIECE
        over = self._over
        async for whole in answer.content.iter_chunked(size):
            piece, left = whole[:left], max(left - len(whole), 0)
            if fault.corrupt:
                piece = bytes((piece[0] ^ 1, *piece[1:])) if piece else piece
            half = len(piece) // 2
            await response.write(piece[:half])
            if fault.cut:
                await asyncio.sleep(0.1)  # what was written goes out, so that the cut is in the middle
                _cut(request)
            if any(one.silent and one.concerns(known) for one in self._faults):
                await self._over.wait()
            await response.write(piece[half:])
            if fault.rate:
                with suppress(TimeoutError):
                    async with asyncio.timeout(len(piece) / fault.rate):
                        await over.wait()
        await response.write_eof()


class FaultyRegistry(FaultyServer):
    """A registry."""

    def refusal(self, fault: Fault) -> web.Response:
        """Return an error answer of the OCI distribution specification."""
        code, message = fault.error
        body = {"errors": [{"code": code, "message": message, "detail": None}]}
        return web.json_response(body, status=fault.status, headers={**_API_VERSION, **fault.headers})


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)


@contextmanager
def serving[S: "FaultyServer"](server: S) -> Iterator[S]:
    """Let `server` serve, in a thread of its own.

    Raises:
        LabError: it cannot listen.
    """
    ready: Future[None] = Future()
    thread = threading.Thread(target=server.run, args=(ready,), name="faulty server", daemon=True)
    thread.start()
    try:
        ready.result(30)
    except OSError as problem:
        raise LabError(f"a faulty server cannot listen on {server.address}: {problem}") from problem
    try:
        yield server
    finally:
        server.end()
        thread.join(10)
