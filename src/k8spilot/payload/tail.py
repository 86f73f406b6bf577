"""The end of a command's output, kept in memory for `docker logs`."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

KEPT_BYTES: Final = 1024 * 1024


class Piece(NamedTuple):
    """Some output."""

    time: float
    """When it was read, seconds since the epoch."""
    stream: int
    data: bytes


class Tail:
    """The last `KEPT_BYTES` of both streams, in the order in which they were read."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._size = 0

    def __iter__(self) -> Iterator[Piece]:
        """Iterate over a copy: it may grow meanwhile."""
        return iter(tuple(self._pieces))

    def add(self, stream: int, data: bytes) -> None:
        """Keep `data`, and forget what is too old for it."""
        data = data[-KEPT_BYTES:]
        self._pieces.append(Piece(time.time(), stream, data))
        self._size += len(data)
        while self._size > KEPT_BYTES:
            self._size -= len(self._pieces.popleft().data)
