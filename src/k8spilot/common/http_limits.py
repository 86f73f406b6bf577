"""HTTP connections whose other end may mean no good: how many there are, and how long they may take.

aiohttp bounds lines, headers, bodies and pipelines. It waits without end for the rest of a request's head and for who
does not read an answer, and takes as many connections as there are. A proxy in front that has such limits would be one
more process of every pilot, and would hide whose connection it is (SO_PEERCRED).
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar, Final

from aiohttp import web

_HEADERS: Final = 64
_LATE: Final = "the request did not come to its end in time"
_FULL: Final = "there are too many connections; try again later"


class ConnectionLimiter:
    """Lets so many connections in, and from one origin still fewer, so that there is always room for another one's."""

    def __init__(self, connections: int, of_one: int) -> None:
        self._connections = connections
        self._of_one = of_one
        self._inside: Counter[str] = Counter()

    def enter(self, who: str) -> bool:
        """Whether `who` may; `leave` must be called then."""
        if self._inside[who] >= self._of_one or self._inside.total() >= self._connections:
            if not self._inside[who]:
                del self._inside[who]
            return False
        self._inside[who] += 1
        return True

    def leave(self, who: str) -> None:
        """One connection less."""
        self._inside[who] -= 1
        if not self._inside[who]:
            del self._inside[who]


class MemoryBudget:
    """Bytes that clients have made somebody keep, up to so many."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        """Whether there is room for `size` more; `give` them back then."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """They are not kept any more."""
        self._left += size


class LimitedRequestHandler(web.RequestHandler):
    """A connection with limits; one that waits for its client gives way when there are too many."""

    __slots__ = ("_admitted", "_door", "_idle", "_patient", "_times", "_who")

    HEAD_SECONDS: ClassVar[float] = 10.0
    """From its first byte to its last, or from the connection on."""
    READING_SECONDS: ClassVar[float] = 60.0
    """For who does not read what is written, but where a job's output waits for them."""

    def __init__(
        self, door: ConnectionLimiter, idle: "dict[LimitedRequestHandler, None]", manager: web.Server, **options: Any
    ) -> None:
        # What comes compressed could be a thousand times larger, and no client of ours compresses.
        super().__init__(manager, auto_decompress=False, max_headers=_HEADERS, **options)
        self._door = door
        self._admitted = False
        self._who = ""
        self._idle = idle
        """Those of all that wait for a request, the one that has waited longest first."""
        self._times: dict[str, asyncio.TimerHandle] = {}
        self._patient = False

    @property
    def busy(self) -> bool:
        """Whether a request is here as a whole, or is served."""
        return self._request_in_progress or bool(self._messages) or self._upgraded

    def be_patient(self) -> None:
        """From now on, who does not read is waited for."""
        self._patient = True
        self._stop("reading")

    def origin(self, transport: asyncio.Transport) -> str:
        """Whose connection it is, not empty."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve it, or hang up."""
        assert isinstance(transport, asyncio.Transport)
        who = self.origin(transport)
        if not self._door.enter(who) and not (self._make_room(who) and self._door.enter(who)):
            transport.write(_last_words(HTTPStatus.SERVICE_UNAVAILABLE, _FULL))
            transport.close()
            self._start("reading", self.HEAD_SECONDS, transport.abort)
            return
        self._who, self._admitted = who, True
        super().connection_made(transport)
        self._idle[self] = None
        self._start("head", self.HEAD_SECONDS, self._be_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let another one in."""
        for what in list(self._times):
            self._stop(what)
        self._leave()
        if self._admitted:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Time the head of a request, from its first byte on."""
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
        """Wait for the next request then."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._patient = False
            if self._who and not self._messages and not self._upgraded:
                self._idle[self] = None

    def pause_writing(self) -> None:
        """Time how long nothing is read of what was written."""
        super().pause_writing()
        if not self._patient:
            self._start("reading", self.READING_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """It is read."""
        self._stop("reading")
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Tell what is wrong in one line, and log nothing: clients send what they like."""
        if isinstance(exc, ConnectionError) or (status < HTTPStatus.INTERNAL_SERVER_ERROR and _begun(request)):
            raise ConnectionError from exc  # which ends it without a word
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        words = " ".join((message or "").replace("^", " ").split())[:200]
        body = json.dumps({"message": f"the request cannot be read ({words})"}).encode()
        answer = web.Response(status=status, body=body, headers={"Content-Type": "application/json"})
        answer.force_close()
        return answer

    def _make_room(self, who: str) -> bool:
        """End the connection of `who` that has been idle for longest; False when there is none."""
        other = next((one for one in self._idle if one._who == who), None)  # noqa: SLF001 -- its own kind
        if other is None:
            return False
        other._leave()  # noqa: SLF001
        other._abort()  # noqa: SLF001
        return True

    def _leave(self) -> None:
        self._idle.pop(self, None)
        if self._who:
            self._door.leave(self._who)
            self._who = ""

    def _be_late(self) -> None:
        del self._times["head"]
        if not self.busy and self.transport is not None:
            self.transport.write(_last_words(HTTPStatus.REQUEST_TIMEOUT, _LATE))
            transport = self.transport
            self.force_close()
            self._start("reading", self.HEAD_SECONDS, transport.abort)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _start(self, what: str, seconds: float, act: Callable[[], None]) -> None:
        self._stop(what)
        self._times[what] = asyncio.get_running_loop().call_later(seconds, act)

    def _stop(self, what: str) -> None:
        if (timer := self._times.pop(what, None)) is not None:
            timer.cancel()


def _begun(request: web.BaseRequest) -> bool:
    """Whether some of an answer is on its way."""
    return request.writer.output_size > 0


def _last_words(status: HTTPStatus, message: str) -> bytes:
    """An answer where there is no request to answer."""
    body = json.dumps({"message": message})
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode()
