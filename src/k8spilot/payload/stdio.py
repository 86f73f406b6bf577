"""The streams of a command, between its pipes or terminal and whoever is attached.

The pipes are ours and reach the command as descriptors, so nothing lies on disk. What nobody takes is dropped but for
its end (output_buffer.py); who is attached and slow slows the command down, not the pilot's memory.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import struct
import termios
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from k8spilot.payload.output_buffer import OutputBuffer

logger = logging.getLogger(__name__)

STDOUT: Final = 1
STDERR: Final = 2

Sink = Callable[[int, bytes], Awaitable[None]]
"""Takes a stream's number and some of its bytes; raises ConnectionError when it takes no more."""

_PIPE_BYTES: Final = 1024 * 1024
"""The most without privileges (/proc/sys/fs/pipe-max-size); all pipes of a user together may get less."""
_PIECE_BYTES: Final = 64 * 1024
"""Less than what malloc asks the kernel for each time (engine/memory.py), which would take twice as much time."""
_SIZE: Final = struct.Struct("4H")  # struct winsize: rows, columns, and two that are not used


class Stdio:
    """The streams of one command.

    It exists before the command does: who is attached early gets all, and what is written early waits.
    """

    def __init__(self, *, terminal: bool = False, reads: bool = False, keeps: bool = True) -> None:
        self.terminal = terminal
        """The command has a terminal, and one stream of output."""
        self.sinks: list[Sink] = []
        """Whoever is attached; may grow at any time."""
        self.tail = OutputBuffer()
        self._keeps = keeps
        """Whether the end of the output is kept."""
        self.carried = 0
        """Bytes read from the command so far."""
        self.writing = 0
        """Streams that wait for somebody to take their bytes."""
        self._reads = reads
        self._ours: dict[int, int] = {}
        """Our ends, by stream; 0 is the command's input. A terminal is one descriptor for all."""
        self._theirs: tuple[int, ...] = ()
        self._ready = asyncio.Event()
        self._size: tuple[int, int] | None = None
        self._waits: dict[asyncio.Future[None], tuple[int, Callable[[int], object]]] = {}
        """Who waits for one of our ends, and how the loop forgets about it."""
        self._input = asyncio.Lock()
        """The loop knows one writer of a descriptor."""
        self._hung_up = False

    def __enter__(self) -> Self:
        """Make the pipes."""
        if self.terminal:
            return self
        reading, writing = (os.pipe2(os.O_CLOEXEC) for _ in range(2))
        self._ours = {STDOUT: reading[0], STDERR: writing[0]}
        if self._reads:
            stdin, self._ours[0] = os.pipe2(os.O_CLOEXEC)
        else:
            stdin = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._theirs = (stdin, reading[1], writing[1])
        for descriptor in self._ours.values():
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._ready.set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of everything."""
        self.hand_over()
        self._close()
        self._ready.set()

    def _close(self) -> None:
        ours, self._ours = set(self._ours.values()), {}
        for descriptor in ours:
            self._let_go(descriptor)

    def _let_go(self, descriptor: int) -> None:
        """Close one of our ends; who waits for it goes on, before its number becomes another file's."""
        for ready in [one for one, (waited, _) in self._waits.items() if waited == descriptor]:
            _, forget = self._waits.pop(ready)
            forget(descriptor)
            if not ready.done():
                ready.set_result(None)
        os.close(descriptor)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Standard input, output and error for the command; none for one that gets a terminal."""
        return self._theirs

    def hand_over(self) -> None:
        """Close our copies of the command's ends, so that its end is the end of the streams."""
        theirs, self._theirs = self._theirs, ()
        for descriptor in theirs:
            os.close(descriptor)

    def use_terminal(self, descriptor: int) -> None:
        """Take the master side of the command's terminal."""
        if self._hung_up:
            os.close(descriptor)
            return
        os.set_blocking(descriptor, False)
        self._ours = {0: descriptor, STDOUT: descriptor}
        if self._size is not None:
            self.resize(*self._size)
        self._ready.set()

    async def tell(self, words: str) -> None:
        """Give whoever is attached a line that is none of the command's."""
        await self._give(STDOUT, f"{words}\r\n".encode())

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal a size; before there is one, the size that it will have."""
        self._size = (rows, columns)
        if self.terminal and self._ours:
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self._ours[0], termios.TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))

    async def write(self, data: bytes) -> None:
        """Give `data` to the command's standard input as it reads, once there is a command."""
        await self._ready.wait()
        rest = memoryview(data)
        async with self._input:
            while rest and 0 in self._ours:
                try:
                    rest = rest[os.write(self._ours[0], rest) :]
                except BlockingIOError:
                    await self._until_ready(self._ours[0], write=True)
                except OSError:  # it has closed its end: nobody reads the rest
                    return

    async def end_input(self) -> None:
        """Close the command's standard input. A terminal has no end: people type one."""
        await self._ready.wait()
        if not self.terminal and 0 in self._ours:
            self._let_go(self._ours.pop(0))

    def hang_up(self) -> None:
        """Nobody is attached any more: the end of input, and for who has a terminal that its line is cut (SIGHUP)."""
        self._hung_up = True
        if self.terminal:
            self._close()
        elif 0 in self._ours:
            self._let_go(self._ours.pop(0))

    async def pump(self) -> None:
        """Carry the output until the last writer has closed it."""
        async with asyncio.TaskGroup() as streams:
            for stream in [one for one in self._ours if one in (STDOUT, STDERR)]:
                streams.create_task(self._carry(stream), name=f"stream {stream}")

    async def _carry(self, stream: int) -> None:
        while data := await self._read(stream):
            self.carried += len(data)
            if self._keeps:
                self.tail.add(stream, data)
            await self._give(stream, data)

    async def _read(self, stream: int) -> bytes:
        """The next bytes; none at the end."""
        await asyncio.sleep(0)  # who writes without a pause must not keep the loop from everything else
        while stream in self._ours:
            try:
                return os.read(self._ours[stream], _PIECE_BYTES)
            except BlockingIOError:
                await self._until_ready(self._ours[stream])
            except OSError as error:
                if error.errno != errno.EIO:  # the last process has closed the terminal (ioctl_tty(2))
                    raise
                break
        return b""

    async def _give(self, stream: int, data: bytes) -> None:
        self.writing += 1
        try:
            for sink in list(self.sinks):
                try:
                    await sink(stream, data)
                except ConnectionError:
                    logger.info("Whoever was attached to a command's output has gone; it is dropped from here on.")
                    if sink in self.sinks:
                        self.sinks.remove(sink)
        finally:
            self.writing -= 1

    async def _until_ready(self, descriptor: int, *, write: bool = False) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
        add(descriptor, lambda: None if ready.done() else ready.set_result(None))
        self._waits[ready] = (descriptor, remove)
        try:
            await ready
        finally:
            if self._waits.pop(ready, None) is not None:
                remove(descriptor)
