"""Last part of a command's output, in memory for `docker logs`."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

KEPT_BYTES: Final = 1024 * 1024
_JOINED_BYTES: Final = 4096
PIECE_BYTES: Final = 256
"""Memory of a piece beside its data. A job chooses the number of pieces: each write may become one."""


class Piece(NamedTuple):
    """Part of the output."""

    time: float
    """Time of reading, seconds since the epoch."""
    stream: int
    data: bytes


class OutputBuffer:
    """Last output of both streams, in the order of reading, in `KEPT_BYTES` of memory."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._size = 0

    def __iter__(self) -> Iterator[Piece]:
        """Iterate over a copy, because the buffer may grow meanwhile."""
        return iter(tuple(self._pieces))

    def add(self, stream: int, data: bytes) -> None:
        """Add `data`, and drop the oldest pieces beyond the limit."""
        data, now = data[-KEPT_BYTES:], time.time()
        last = self._pieces[-1] if self._pieces else None
        if (
            last is not None
            and last.stream == stream
            and now - last.time < 1
            and len(last.data) + len(data) <= _JOINED_BYTES
        ):
            self._pieces[-1] = last._replace(data=last.data + data)  # fewer objects for output in small writes
        else:
            self._pieces.append(Piece(now, stream, data))
            self._size += PIECE_BYTES
        self._size += len(data)
        while self._size > KEPT_BYTES + PIECE_BYTES:
            self._size -= len(self._pieces.popleft().data) + PIECE_BYTES
