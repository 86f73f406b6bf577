"""Limits for HTTP connections from untrusted clients: their number, and their duration.

aiohttp limits lines, headers, bodies and pipelines. It does not limit the time for the rest of a request's head, the
time of a client that does not read an answer, or the number of connections. A proxy in front with such limits would be
one more process of every pilot, and would hide whose connection it is (SO_PEERCRED).

Whether a connection is idle is known by private attributes of aiohttp alone (tests/unit/test_common_http_limits.py).
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar, Final

from aiohttp import web

_HEADERS: Final = 64
_TOO_LATE: Final = "the request was not complete in time"
_TOO_MANY: Final = "there are too many connections; try again later"


class ConnectionLimiter:
    """Limits the number of connections, in total and for each origin, so that every origin can connect."""

    def __init__(self, connections: int, of_one: int) -> None:
        self._connections = connections
        self._of_one = of_one
        self._inside: Counter[str] = Counter()

    def enter(self, who: str) -> bool:
        """Count a connection of `who`, and return whether it is allowed. An allowed connection must call `leave`."""
        if self._inside[who] >= self._of_one or self._inside.total() >= self._connections:
            if not self._inside[who]:
                del self._inside[who]
            return False
        self._inside[who] += 1
        return True

    def leave(self, who: str) -> None:
        """Count the end of a connection."""
        self._inside[who] -= 1
        if not self._inside[who]:
            del self._inside[who]


class MemoryBudget:
    """Limit of the bytes that are kept for clients."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        """Reserve `size` bytes, and return whether there was room. Return them with `give`."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Return reserved bytes."""
        self._left += size


class LimitedRequestHandler(web.RequestHandler):
    """A connection with limits. If there are too many, an idle one is closed."""

    __slots__ = ("_admitted", "_idle", "_limiter", "_patient", "_times", "_who")

    HEAD_SECONDS: ClassVar[float] = 10.0
    """Limit of a request's head in seconds, from its first byte or from the connection's start."""
    READING_SECONDS: ClassVar[float] = 60.0
    """Limit of a client that does not read an answer, in seconds. It does not apply to a job's output."""

    def __init__(
        self, limiter: ConnectionLimiter, idle: "dict[LimitedRequestHandler, None]", manager: web.Server, **options: Any
    ) -> None:
        # A compressed body could be a thousand times larger, and no client of ours compresses.
        super().__init__(manager, auto_decompress=False, max_headers=_HEADERS, **options)
        self._limiter = limiter
        self._admitted = False
        self._who = ""
        self._idle = idle
        """All connections that wait for a request, the longest waiting first."""
        self._times: dict[str, asyncio.TimerHandle] = {}
        self._patient = False

    @property
    def busy(self) -> bool:
        """Whether a request is complete or being served."""
        return self._request_in_progress or bool(self._messages) or self._upgraded

    def be_patient(self) -> None:
        """Wait without limit for a client that does not read."""
        self._patient = True
        self._stop("reading")

    def origin(self, transport: asyncio.Transport) -> str:
        """Return the origin of a connection, not empty."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the connection, or close it."""
        assert isinstance(transport, asyncio.Transport)
        who = self.origin(transport)
        if not self._limiter.enter(who) and not (self._make_room(who) and self._limiter.enter(who)):
            transport.write(_closing_answer(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MANY))
            transport.close()
            self._start("reading", self.HEAD_SECONDS, transport.abort)
            return
        self._who, self._admitted = who, True
        super().connection_made(transport)
        self._idle[self] = None
        self._start("head", self.HEAD_SECONDS, self._be_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the connection's place."""
        for timer_name in list(self._times):
            self._stop(timer_name)
        self._leave()
        if self._admitted:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the time limit of a request's head at its first byte."""
        if not self._who:
            return
        super().data_received(data)
        if self.busy:
            self._stop("head")
            self._idle.pop(self, None)
        elif "head" not in self._times:
            self._start("head", self.HEAD_SECONDS, self._be_late)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Finish the response, and wait for the next request."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._patient = False
            if self._who and not self._messages and not self._upgraded:
                self._idle[self] = None

    def pause_writing(self) -> None:
        """Start the time limit of an unread answer."""
        super().pause_writing()
        if not self._patient:
            self._start("reading", self.READING_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Stop the time limit: the client reads."""
        self._stop("reading")
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer with one line, without a log line: clients can send anything."""
        if isinstance(exc, ConnectionError) or (status < HTTPStatus.INTERNAL_SERVER_ERROR and _has_begun(request)):
            raise ConnectionError from exc  # closes the connection without an answer
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        detail = " ".join((message or "").replace("^", " ").split())[:200]
        body = json.dumps({"message": f"the request is invalid ({detail})"}).encode()
        answer = web.Response(status=status, body=body, headers={"Content-Type": "application/json"})
        answer.force_close()
        return answer

    def _make_room(self, who: str) -> bool:
        """Close the longest idle connection of `who`. Return whether there was one."""
        other = next((idle for idle in self._idle if idle._who == who), None)  # noqa: SLF001 -- same class
        if other is None:
            return False
        other._leave()  # noqa: SLF001
        other._abort()  # noqa: SLF001
        return True

    def _leave(self) -> None:
        self._idle.pop(self, None)
        if self._who:
            self._limiter.leave(self._who)
            self._who = ""

    def _be_late(self) -> None:
        del self._times["head"]
        if not self.busy and self.transport is not None:
            self.transport.write(_closing_answer(HTTPStatus.REQUEST_TIMEOUT, _TOO_LATE))
            transport = self.transport
            self.force_close()
            self._start("reading", self.HEAD_SECONDS, transport.abort)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _start(self, timer_name: str, seconds: float, act: Callable[[], None]) -> None:
        self._stop(timer_name)
        self._times[timer_name] = asyncio.get_running_loop().call_later(seconds, act)

    def _stop(self, timer_name: str) -> None:
        if (timer := self._times.pop(timer_name, None)) is not None:
            timer.cancel()


def _has_begun(request: web.BaseRequest) -> bool:
    """Return whether a part of an answer was sent."""
    return request.writer.output_size > 0


def _closing_answer(status: HTTPStatus, message: str) -> bytes:
    """Return an answer as bytes, without a request."""
    body = json.dumps({"message": message})
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode()
