"""What goes in and out of containers: attach, logs, resize."""

import asyncio
import contextlib
import struct
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from k8spilot.docker.answers import BadRequest, flag
from k8spilot.docker.containers import find
from k8spilot.docker.state import Container
from k8spilot.docker.streams import MULTIPLEXED_STREAM, RAW_STREAM, Input, frame, hung_up, take_over
from k8spilot.errors import PayloadLost
from k8spilot.payload.stdio import Sink, Stdio
from k8spilot.payload.tail import Piece

_PARTING_SECONDS: Final = 2.0


async def attach(request: web.Request) -> web.StreamResponse:
    """POST /containers/ID/attach: the connection carries the streams until the end, and then closes."""
    container = find(request)
    wanted = _wanted(request)
    stdio = container.stdio
    response, input_ = await take_over(request, framed=not stdio.terminal)
    if flag(request, "logs"):
        for piece in stdio.tail:
            await _write(response, stdio, piece.stream, piece.data)

    async def sink(stream: int, data: bytes) -> None:
        if stream in wanted:
            await _write(response, stdio, stream, data)

    reads = flag(request, "stdin") and container.specification.reads
    await carry(request, stdio, sink, container.settled, input_ if reads else None)
    if not container.settled.is_set() and not stdio.sinks and container.specification.is_job:
        _forsake(container)
    return response


async def carry(request: web.Request, stdio: Stdio, sink: Sink, settled: asyncio.Event, input_: Input | None) -> None:
    """Serve an attached client until `settled`, or until it hangs up."""
    stdio.sinks.append(sink)
    ends = [asyncio.ensure_future(hung_up(request)), asyncio.ensure_future(settled.wait())]
    feeder = asyncio.ensure_future(_feed(stdio, input_)) if input_ is not None else None
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for work in (*ends, *([feeder] if feeder is not None else [])):
            work.cancel()
        with contextlib.suppress(ValueError):  # it has failed already
            stdio.sinks.remove(sink)
    if feeder is not None and input_ is not None and settled.is_set():
        await asyncio.wait([feeder])
        await _part(request, input_)


async def _part(request: web.Request, input_: Input) -> None:
    """End our side first: closing a socket with unread input would reset what the client has not read yet."""
    if request.transport is not None and not request.transport.is_closing():
        request.transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS):
                while await input_.read():
                    pass


async def _feed(stdio: Stdio, input_: Input) -> None:
    while data := await input_.read():
        await stdio.write(data)
    await stdio.end_input()


async def _write(response: web.StreamResponse, stdio: Stdio, stream: int, data: bytes) -> None:
    await response.write(data if stdio.terminal else frame(stream, data))


def _wanted(request: web.Request) -> set[int]:
    return {number for number, name in ((1, "stdout"), (2, "stderr")) if flag(request, name)}


def _forsake(container: Container) -> None:
    """The starter's `docker start -a` has died. HTCondor would take that for the job's end, with the CLI's status."""
    container.lost = PayloadLost("HTCondor's docker client went away before the job ended; it goes back to the queue")
    if container.run is not None:
        container.run.forsake()


async def logs(request: web.Request) -> web.StreamResponse:
    """GET /containers/ID/logs: what is kept of the output (tail.py), and what follows."""
    container = find(request)
    wanted, stdio = _wanted(request), container.stdio
    if not wanted:
        raise BadRequest("choose at least one stream: stdout=1 or stderr=1")
    lines = _last_lines([one for one in stdio.tail if one.stream in wanted], request)
    content_type = RAW_STREAM if stdio.terminal else MULTIPLEXED_STREAM
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    for stream, line in lines:
        await _write(response, stdio, stream, line)
    if flag(request, "follow") and container.running:

        async def sink(stream: int, data: bytes) -> None:
            if stream in wanted:
                await _write(response, stdio, stream, data)

        stdio.sinks.append(sink)
        try:
            await container.settled.wait()
        finally:
            with contextlib.suppress(ValueError):
                stdio.sinks.remove(sink)
    await response.write_eof()
    return response


def _last_lines(pieces: list[Piece], request: web.Request) -> list[tuple[int, bytes]]:
    """The pieces cut into lines; the last `tail` of them."""
    try:
        since = float(request.query.get("since", "0") or 0)
        count = None if request.query.get("tail", "all") in ("all", "") else int(request.query["tail"])
    except ValueError as error:
        raise BadRequest("tail is a number of lines or all, since is a time in seconds since the epoch") from error
    stamps = flag(request, "timestamps")
    lines: list[tuple[int, bytes]] = []
    for piece in pieces:
        if piece.time < since:
            continue
        stamp = f"{datetime.fromtimestamp(piece.time, UTC):%Y-%m-%dT%H:%M:%S.%fZ} ".encode() if stamps else b""
        lines += [(piece.stream, stamp + line) for line in piece.data.splitlines(keepends=True)]
    return lines if count is None else lines[-count:] if count else []


async def resize(request: web.Request) -> web.Response:
    """POST /containers/ID/resize?h=&w=."""
    return resized(request, find(request).stdio)


def resized(request: web.Request, stdio: Stdio) -> web.Response:
    """Give a terminal the size that the request names."""
    try:
        stdio.resize(int(request.query["h"]), int(request.query["w"]))
    except (KeyError, ValueError, struct.error) as error:
        raise BadRequest("h and w are the numbers of lines and columns") from error
    return web.Response()


ROUTES: Final = [
    web.post("/containers/{id}/attach", attach),
    web.post("/containers/{id}/resize", resize),
    web.get("/containers/{id}/logs", logs),
]
