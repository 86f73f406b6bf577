"""The end of a command's output, kept in memory for `docker logs`."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

KEPT_BYTES: Final = 1024 * 1024
_JOINED_BYTES: Final = 4096


class Piece(NamedTuple):
    """Some output."""

    time: float
    """When it was read, seconds since the epoch."""
    stream: int
    data: bytes


class OutputBuffer:
    """The last `KEPT_BYTES` of both streams, in the order in which they were read."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._size = 0

    def __iter__(self) -> Iterator[Piece]:
        """Iterate over a copy: it may grow meanwhile."""
        return iter(tuple(self._pieces))

    def add(self, stream: int, data: bytes) -> None:
        """Keep `data`, and forget what is too old for it."""
        data, now = data[-KEPT_BYTES:], time.time()
        last = self._pieces[-1] if self._pieces else None
        if (
            last is not None
            and last.stream == stream
            and now - last.time < 1
            and len(last.data) + len(data) <= _JOINED_BYTES
        ):
            self._pieces[-1] = last._replace(data=last.data + data)  # one object for each byte would be many
        else:
            self._pieces.append(Piece(now, stream, data))
        self._size += len(data)
        while self._size > KEPT_BYTES:
            self._size -= len(self._pieces.popleft().data)
