"""Streams of containers: attach, logs, resize.

A client that was attached when the container started gets all of its output: the container waits for it, as for
HTCondor's own starter. A later client of a job only watches, and is disconnected when it falls behind: a `docker logs
-f` in a stopped terminal never keeps a job from ending.
"""

import asyncio
import contextlib
import struct
from typing import Any, Final

from aiohttp import web

from k8spilot.common.aio import first_of, named, side_by_side
from k8spilot.common.errors import PayloadLost
from k8spilot.docker.container import Container
from k8spilot.docker.containers import find
from k8spilot.docker.hijack import MULTIPLEXED_STREAM, RAW_STREAM, Connection, Input, frame, hung_up, take_over
from k8spilot.docker.json_http import BadRequest, flag
from k8spilot.docker.logs import Follower, Lines, last_lines
from k8spilot.model.container_state import ContainerState
from k8spilot.payload.command.stdio import Sink, Stdio

_CLOSE_SECONDS: Final = 2.0
_WRITE_BYTES: Final = 64 * 1024


async def attach(request: web.Request) -> web.StreamResponse:
    """Serve POST /containers/ID/attach: the connection carries the streams until the end, and then closes."""
    container = find(request)
    stdio = container.stdio
    is_first = container.run is None and container.state is not ContainerState.STARTING
    response, input_ = await take_over(request, framed=not stdio.terminal)
    output = Output(response, stdio, _wanted(request))
    reads = flag(request, "stdin") and container.specification.reads
    if is_first:
        await lead(request, container, output.write, input_ if reads else None)
        if reads and container.settled.is_set():
            await close(request, input_)
    else:
        before = [(chunk.stream, chunk.data) for chunk in stdio.tail] if flag(request, "logs") else []
        await _join(request, container, output, before=before, input_=input_ if reads else None)
    return response


async def lead(request: web.Request, container: Container, sink: Sink, input_: Input | None) -> None:
    """Serve the client that is attached when the container starts. A job does not run without it."""
    try:
        await carry(request, container.stdio, sink=sink, settled=container.settled, input_=input_)
    finally:  # aiohttp cancels this when a write fails before hung_up() returns
        if not container.settled.is_set() and container.specification.is_job:
            # The starter's `docker start -a` has died. HTCondor would take that for the job's end, with its status.
            container.forsake(
                PayloadLost("HTCondor's docker client ended before the job; the job goes back to the queue")
            )


def _wanted(request: web.Request) -> set[int]:
    return {number for number, name in ((1, "stdout"), (2, "stderr")) if flag(request, name)}


class Output:
    """Streams on their way to one client: in frames, or unchanged from a terminal."""

    def __init__(self, response: web.StreamResponse, stdio: Stdio, wanted: set[int]) -> None:
        self._response = response
        self._framed = not stdio.terminal
        self._wanted = wanted
        """Streams that the client asked for."""

    async def write(self, stream: int, data: bytes) -> None:
        """Write the next output, as a sink of Stdio."""
        if stream in self._wanted:
            await self._response.write(frame(stream, data) if self._framed else data)

    async def write_all(self, lines: Lines) -> None:
        """Write much at once. asyncio adds up its whole buffer at each write, and short lines would fill it."""
        joined = bytearray()
        for stream, data in lines:
            if stream in self._wanted:
                joined += frame(stream, data) if self._framed else data
            if len(joined) >= _WRITE_BYTES:
                await self._response.write(bytes(joined))
                joined.clear()
        if joined:
            await self._response.write(bytes(joined))


async def carry(
    request: web.Request, stdio: Stdio, *, sink: Sink, settled: asyncio.Event, input_: Input | None
) -> None:
    """Serve an attached client until `settled`, or until it disconnects."""
    stdio.sinks.append(sink)
    feeding = [] if input_ is None else [_feed(stdio, input_)]
    try:
        async with side_by_side(hung_up(request), settled.wait(), *feeding) as (gone, ended, *_):
            await first_of(gone, ended)
    finally:
        with contextlib.suppress(ValueError):  # it was removed after a failure
            stdio.sinks.remove(sink)


async def close(request: web.Request, input_: Input) -> None:
    """Close the sending side first: closing a socket with unread input would discard the client's unread output."""
    upgraded = request.headers.get("Upgrade", "").lower() == "tcp"
    if upgraded and request.transport is not None and not request.transport.is_closing():
        request.transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while await input_.read():
                    pass


async def _feed(stdio: Stdio, input_: Input, *, ends: bool = True) -> None:
    """Pass on the client's input. The first client also ends the input (`ends`, Docker's StdinOnce)."""
    while data := await input_.read():
        await stdio.write(data)
    if ends:
        await stdio.end_input()


async def _join(
    request: web.Request, container: Container, output: Output, *, before: Lines, input_: Input | None
) -> None:
    """Write the output `before` now and all later output, until the end or until the client disconnects."""
    feeding = [] if input_ is None else [_feed(container.stdio, input_, ends=False)]
    async with side_by_side(_follow(container, output, before), hung_up(request), *feeding) as (following, gone, *_):
        await first_of(following, gone)


async def _follow(
    container: Container, output: Output, before: Lines, ready: "asyncio.Future[Any] | None" = None
) -> None:
    """Write the output `before`, once the response is `ready`, and then what comes: none is missed in between."""
    follower, written = Follower(), asyncio.Event()

    async def write_in_order(stream: int, data: bytes) -> None:
        """Write without a limit: a container that a person created waits for its followers."""
        await written.wait()
        await output.write(stream, data)

    sink = follower.take if container.specification.is_job else write_in_order
    container.stdio.sinks.append(sink)
    try:
        if ready is not None:
            await ready
        await output.write_all(before)
        written.set()
        async with side_by_side(container.settled.wait()) as (ending,):
            ending.add_done_callback(lambda _: follower.end())
            while (piece := await follower.next()) is not None:
                await output.write(*piece)
    finally:
        with contextlib.suppress(ValueError):
            container.stdio.sinks.remove(sink)


async def logs(request: web.Request) -> web.StreamResponse:
    """Serve GET /containers/ID/logs: the kept output (payload/command/output_buffer.py), and later output."""
    container = find(request)
    if not (wanted := _wanted(request)):
        raise BadRequest("choose at least one stream: stdout=1 or stderr=1")
    lines = last_lines([chunk for chunk in container.stdio.tail if chunk.stream in wanted], request)
    content_type = RAW_STREAM if container.stdio.terminal else MULTIPLEXED_STREAM
    response = web.StreamResponse(headers={"Content-Type": content_type})
    assert isinstance(request.protocol, Connection)
    request.protocol.be_patient()  # people may read slowly, page by page
    output = Output(response, container.stdio, wanted)
    if flag(request, "follow") and container.active:
        preparing = named(response.prepare(request))
        await _follow(container, output, lines, preparing)  # collects output from now on, while the headers are sent
        await preparing
    else:
        await response.prepare(request)
        await output.write_all(lines)
    await response.write_eof()
    return response


async def resize(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/resize?h=&w=."""
    return resized(request, find(request).stdio)


def resized(request: web.Request, stdio: Stdio) -> web.Response:
    """Resize a terminal as the request says."""
    try:
        stdio.resize(int(request.query["h"]), int(request.query["w"]))
    except (KeyError, ValueError, struct.error) as error:
        raise BadRequest("h and w must be the numbers of lines and columns") from error
    return web.Response()


ROUTES: Final = [
    web.post("/containers/{id}/attach", attach),
    web.post("/containers/{id}/resize", resize),
    web.get("/containers/{id}/logs", logs),
]
