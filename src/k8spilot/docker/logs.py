"""A container's output for `docker logs` and `docker attach`: what is kept of it, line by line, and what follows."""

import asyncio
from collections import deque
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from k8spilot.docker.json_http import BadRequest, flag
from k8spilot.payload.output_buffer import Piece

_BEHIND_BYTES: Final = 4 * 1024 * 1024

Lines = list[tuple[int, bytes]]
"""Stream and text, in order."""


def last_lines(pieces: list[Piece], request: web.Request) -> Lines:
    """The lines in `pieces` that a request for logs wants: `tail` of them, `since` a time, with `timestamps`.

    Raises:
        BadRequest: a number is none.
    """
    try:
        since = float(request.query.get("since") or 0)
        until = float(request.query.get("until") or 0)
        count = -1 if request.query.get("tail", "all") in ("all", "") else int(request.query["tail"])
    except ValueError as error:
        raise BadRequest(
            "tail is a number of lines or all, since and until are times in seconds since the epoch"
        ) from error
    chosen = [one for one in _whole_lines(pieces) if one.time >= since and (not until or one.time <= until)]
    if count >= 0:
        chosen = chosen[len(chosen) - min(count, len(chosen)) :]
    stamps = flag(request, "timestamps")
    return [(one.stream, (_stamp(one) if stamps else b"") + one.data) for one in chosen]


def _whole_lines(pieces: list[Piece]) -> list[Piece]:
    """The same output, one piece a line; a line has the time and the place of its beginning."""
    lines: list[Piece] = []
    open_: dict[int, int] = {}
    """Stream -> place of its line that has not ended yet."""
    for piece in pieces:
        for part in _split(piece.data):
            place = open_.pop(piece.stream, None)
            if place is None:
                place = len(lines)
                lines.append(piece._replace(data=part))
            else:
                lines[place] = lines[place]._replace(data=lines[place].data + part)
            if not part.endswith(b"\n"):
                open_[piece.stream] = place
    return lines


def _split(data: bytes) -> list[bytes]:
    """At new lines alone: a carriage return is text."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _stamp(piece: Piece) -> bytes:
    return f"{datetime.fromtimestamp(piece.time, UTC):%Y-%m-%dT%H:%M:%S.%fZ} ".encode()


class Follower:
    """A sink that never makes the job wait: cut off when it is too far behind."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bytes] | None] = deque()
        self._size = 0
        self._more = asyncio.Event()

    async def take(self, stream: int, data: bytes) -> None:
        """Keep some output until it is asked for.

        Raises:
            ConnectionResetError: too much is kept already.
        """
        if self._size > _BEHIND_BYTES:
            self.end()
            raise ConnectionResetError
        self._add((stream, data))

    def end(self) -> None:
        """Nothing more comes."""
        self._add(None)

    async def next(self) -> tuple[int, bytes] | None:
        """The next piece: stream and bytes; None at the end."""
        while not self._pieces:
            self._more.clear()
            await self._more.wait()
        if (piece := self._pieces.popleft()) is not None:
            self._size -= len(piece[1])
        return piece

    def _add(self, piece: tuple[int, bytes] | None) -> None:
        self._pieces.append(piece)
        self._size += 0 if piece is None else len(piece[1])
        self._more.set()
