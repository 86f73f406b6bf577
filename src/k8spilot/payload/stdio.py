"""The job's standard output and error, from its pipes to whoever is attached.

The pipes are ours and reach the job as descriptors, so nothing lies on disk. What nobody takes is dropped,
as Docker does with `--log-driver none`; who is attached and slow slows the job down, not the pilot's memory.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

logger = logging.getLogger(__name__)

STDOUT: Final = 1
STDERR: Final = 2

Sink = Callable[[int, bytes], Awaitable[None]]
"""Takes a stream's number and some of its bytes; raises ConnectionError when it takes no more."""

_PIPE_BYTES: Final = 1024 * 1024
"""The most without privileges (/proc/sys/fs/pipe-max-size); all pipes of a user together may get less."""


class Stdio:
    """The three streams of one run."""

    def __init__(self, sinks: list[Sink]) -> None:
        self.sinks = sinks
        self.carried = 0
        """Bytes read from the job so far."""
        self.writing = 0
        """Streams that wait for somebody to take their bytes."""
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._reading: dict[int, int] = {}
        self._writing: dict[int, int] = {}
        for stream in (STDOUT, STDERR):
            self._reading[stream], self._writing[stream] = os.pipe2(os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._reading[stream], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hand_over()
        while self._reading:
            os.close(self._reading.popitem()[1])

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """Standard input, output and error for the job. There is no input: HTCondor starts with `docker start -a`."""
        return self._null, self._writing[STDOUT], self._writing[STDERR]

    def hand_over(self) -> None:
        """Close our copies of the job's ends, so that its end is the end of the streams."""
        if self._writing:
            os.close(self._null)
        while self._writing:
            os.close(self._writing.popitem()[1])

    async def pump(self) -> None:
        """Carry both streams until the last writer has closed them."""
        async with asyncio.TaskGroup() as both:
            for stream in (STDOUT, STDERR):
                both.create_task(self._carry(stream), name=f"stream {stream}")

    async def _carry(self, stream: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIPE_BYTES, loop=loop)
        with os.fdopen(self._reading.pop(stream), "rb", buffering=0) as pipe:
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            try:
                while data := await reader.read(_PIPE_BYTES):
                    self.carried += len(data)
                    await self._give(stream, data)
            finally:
                transport.close()

    async def _give(self, stream: int, data: bytes) -> None:
        self.writing += 1
        try:
            for sink in list(self.sinks):
                try:
                    await sink(stream, data)
                except ConnectionError:
                    logger.info("Whoever was attached to the job's output has gone; it is dropped from here on.")
                    self.sinks.remove(sink)
        finally:
            self.writing -= 1
