"""Who looks on at a container's output without anybody waiting for them."""

import asyncio
from collections import deque
from typing import Final

_BEHIND_BYTES: Final = 4 * 1024 * 1024


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
