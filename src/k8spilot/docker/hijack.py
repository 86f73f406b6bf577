"""Docker's raw streams: hijacked HTTP connections, and their frames.

Engine API, "Attach to a container": after 101 UPGRADED each frame is a header of eight bytes (stream, three zeros,
length as a big-endian 32-bit number) and that many bytes.
"""

import asyncio
import fcntl
import select
import struct
import termios
from typing import Final

from aiohttp import web

from k8spilot.common.http_limits import LimitedRequestHandler
from k8spilot.common.peer_credentials import peer_of
from k8spilot.docker.json_http import MEMORY, no_room

RAW_STREAM: Final = "application/vnd.docker.raw-stream"
MULTIPLEXED_STREAM: Final = "application/vnd.docker.multiplexed-stream"
_HEADER: Final = struct.Struct(">BxxxI")
_LOSING_CLIENT: Final = "docker-sdk-python"
"""User-Agent of a client that loses what it has read together with the headers: the Python package docker reads the
stream from the socket, past the buffer of its HTTP library (APIClient._get_raw_response_socket)."""
_LOOKS, _LOOK_SECONDS = 500, 0.002
"""Number and distance of looks at what that client has read."""
_LARGE: Final = 64 * 1024
_INPUT_BYTES: Final = 64 * 1024


def frame(stream: int, data: bytes) -> bytes:
    """Return `data` as one frame of `stream` (1 stdout, 2 stderr)."""
    return _HEADER.pack(stream, len(data)) + data


class Input:
    """Input of the client on a hijacked connection. A slow reader slows the client down."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._reader = asyncio.StreamReader(_INPUT_BYTES)
        self._reader.set_transport(transport)

    async def read(self) -> bytes:
        """Return some bytes; none at the end."""
        return await self._reader.read(_INPUT_BYTES)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes from aiohttp (its interface of payload parsers).

        Return whether the input has ended, and the rest.
        """
        self._reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        """Record the end."""
        self._reader.feed_eof()


class Connection(LimitedRequestHandler):
    """A connection to the engine's socket. Its client may close its sending side and continue to read.

    The docker CLI does so when it has no input.
    """

    __slots__ = ("input",)

    input: Input

    def origin(self, transport: asyncio.Transport) -> str:
        """Return the client's user: root's liveness checks succeed when HTCondor's account has used up its limit."""
        _, uid = peer_of(transport.get_extra_info("socket"))
        return f"uid {uid}"

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Finish the response. An unread large answer stays in memory, so it must get room first."""
        body = resp.body if isinstance(resp, web.Response) else None
        size = len(body) if isinstance(body, bytes) and len(body) > _LARGE and isinstance(request, web.Request) else 0
        if not size or MEMORY not in request:
            return await super().finish_response(request, resp, start_time)
        assert isinstance(request, web.Request)
        memory = request[MEMORY]
        if not memory.take(size):
            return await super().finish_response(request, no_room("answer"), start_time)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            memory.give(size)

    def take_over(self, input_: Input) -> None:
        """Pass all further data to `input_` instead of the HTTP parser."""
        self.input = input_
        self.be_patient()
        self.set_parser(input_)  # type: ignore[arg-type]

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep a hijacked connection open for writing."""
        if not hasattr(self, "input"):
            return False
        self.input.feed_eof()
        return True


async def hung_up(request: web.Request) -> None:
    """Wait until the client has closed its connection altogether, and not just its sending side.

    asyncio stops reading at the end of the client's data. A separate epoll of the socket reports the hang-up (EPOLLHUP
    is always reported, epoll_ctl(2)).
    """
    assert request.transport is not None
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    with select.epoll() as watching:
        watching.register(request.transport.get_extra_info("socket").fileno(), 0)
        loop.add_reader(watching.fileno(), heard.set)
        try:
            await heard.wait()
        finally:
            loop.remove_reader(watching.fileno())


async def take_over(request: web.Request, *, framed: bool = True) -> tuple[web.StreamResponse, Input]:
    """Turn the connection into a raw stream.

    Return the response, whose bytes are sent unchanged, and the client's input.

    A client that has not requested an upgrade gets 200 and the same bytes (Engine API, "Attach to a container").
    `framed` tells it whether to expect frames.
    """
    upgrade = request.headers.get("Upgrade", "").lower() == "tcp"
    headers = {"Content-Type": MULTIPLEXED_STREAM if framed else RAW_STREAM}
    if upgrade:
        headers |= {"Connection": "Upgrade", "Upgrade": "tcp"}
    response = web.StreamResponse(
        status=101 if upgrade else 200, reason="UPGRADED" if upgrade else None, headers=headers
    )
    assert isinstance(request.protocol, Connection)
    assert isinstance(request.transport, asyncio.Transport)
    input_ = Input(request.transport)
    request.protocol.take_over(input_)
    response.force_close()
    await response.prepare(request)
    if request.headers.get("User-Agent", "").startswith(_LOSING_CLIENT):
        await _received(request.transport)
    return response, input_


async def _received(transport: asyncio.Transport) -> None:
    """Wait up to a second until the client has read all that was sent. The kernel has no event for that."""
    connection = transport.get_extra_info("socket")
    for _ in range(_LOOKS):
        unread = bytearray(4)
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, unread)  # of a Unix socket: what the peer has not read
        if not any(unread):
            return
        await asyncio.sleep(_LOOK_SECONDS)
