"""Docker's raw streams: an HTTP connection taken over for bytes both ways, and the frames in it.

Engine API, "Attach to a container": after 101 UPGRADED each frame is a header of eight bytes (stream, three
zeros, length as a big-endian 32-bit number) and that many bytes.
"""

import asyncio
import select
import struct
from typing import Final

from aiohttp import web

RAW_STREAM: Final = "application/vnd.docker.raw-stream"
_HEADER: Final = struct.Struct(">BxxxI")


def frame(stream: int, data: bytes) -> bytes:
    """`data` as one frame of `stream` (1 stdout, 2 stderr)."""
    return _HEADER.pack(stream, len(data)) + data


class Connection(web.RequestHandler):
    """A connection whose client may close its sending side and go on to read.

    The docker CLI does so when it has no input.
    """

    __slots__ = ("taken_over",)

    taken_over: bool

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for writing once it has been taken over."""
        return getattr(self, "taken_over", False)


async def hung_up(request: web.Request) -> None:
    """Wait until the client has closed its connection altogether, and not just its sending side.

    asyncio stops to listen at the end of what the client sends; a second look at the socket through an epoll of its own
    tells of the hang-up (EPOLLHUP comes without having been asked for, epoll_ctl(2)).
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


async def take_over(request: web.Request) -> web.StreamResponse:
    """Turn the connection into a raw stream; what is written to the response goes out as it is."""
    response = web.StreamResponse(
        status=101,
        reason="UPGRADED",
        headers={"Content-Type": RAW_STREAM, "Connection": "Upgrade", "Upgrade": "tcp"},
    )
    if isinstance(request.protocol, Connection):
        request.protocol.taken_over = True
    response.force_close()
    await response.prepare(request)
    return response
