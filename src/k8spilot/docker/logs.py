"""Output of a container for `docker logs` and `docker attach`: the kept lines, and later output."""

import asyncio
from collections import deque
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from k8spilot.docker.json_http import BadRequest, flag
from k8spilot.payload.command.output_buffer import PIECE_BYTES, Piece

_BEHIND_BYTES: Final = 4 * 1024 * 1024

Lines = list[tuple[int, bytes]]
"""Stream and text, in order."""


def last_lines(pieces: list[Piece], request: web.Request) -> Lines:
    """Return the lines in `pieces` that a request for logs selects: `tail`, `since`, `until`, `timestamps`.

    Raises:
        BadRequest: a number is invalid.
    """
    try:
        since = float(request.query.get("since") or 0)
        until = float(request.query.get("until") or 0)
        count = -1 if request.query.get("tail", "all") in ("all", "") else int(request.query["tail"])
    except ValueError as error:
        raise BadRequest(
            "tail must be a number of lines or all; since and until must be times in seconds since the epoch"
        ) from error
    chosen = [line for line in _whole_lines(pieces) if line.time >= since and (not until or line.time <= until)]
    if count >= 0:
        chosen = chosen[len(chosen) - min(count, len(chosen)) :]
    stamps = flag(request, "timestamps")
    return [(line.stream, (_stamp(line) if stamps else b"") + line.data) for line in chosen]


def _whole_lines(pieces: list[Piece]) -> list[Piece]:
    """Split the output into one piece for each line, with the time and position of the line's beginning."""
    firsts: list[Piece] = []
    """For each line: the piece in which it begins."""
    texts: list[bytearray] = []
    open_: dict[int, bytearray] = {}
    """Stream -> its unfinished line."""
    for piece in pieces:
        for part in _split(piece.data):
            text = open_.pop(piece.stream, None)
            if text is None:
                text = bytearray()
                firsts.append(piece)
                texts.append(text)
            text += part
            if not part.endswith(b"\n"):
                open_[piece.stream] = text
    return [first._replace(data=bytes(text)) for first, text in zip(firsts, texts, strict=True)]


def _split(data: bytes) -> list[bytes]:
    """Split at newlines only: a carriage return is text."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _stamp(piece: Piece) -> bytes:
    return f"{datetime.fromtimestamp(piece.time, UTC):%Y-%m-%dT%H:%M:%S.%fZ} ".encode()


class Follower:
    """Sink that never blocks the job: it disconnects when it is too far behind."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bytes] | None] = deque()
        self._size = 0
        self._more = asyncio.Event()

    async def take(self, stream: int, data: bytes) -> None:
        """Queue output for `next`.

        Raises:
            ConnectionResetError: the queue is full.
        """
        if self._size > _BEHIND_BYTES:
            self.end()
            raise ConnectionResetError
        self._add((stream, data))

    def end(self) -> None:
        """Mark the end of the output."""
        self._add(None)

    async def next(self) -> tuple[int, bytes] | None:
        """Return the next piece: stream and bytes; None at the end."""
        while not self._pieces:
            self._more.clear()
            await self._more.wait()
        if (piece := self._pieces.popleft()) is not None:
            self._size -= len(piece[1]) + PIECE_BYTES
        return piece

    def _add(self, piece: tuple[int, bytes] | None) -> None:
        self._pieces.append(piece)
        self._size += 0 if piece is None else len(piece[1]) + PIECE_BYTES
        self._more.set()
