"""Streams of a command, between its pipes or terminal and the attached clients.

The pilot creates the pipes and passes them to the command as descriptors, so that no output is on disk. Output without
a client is dropped, except its end (output_buffer.py). A slow client slows the command down, and does not fill the
pilot's memory.
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

from k8spilot.payload.command.output_buffer import OutputBuffer

logger = logging.getLogger(__name__)

STDOUT: Final = 1
STDERR: Final = 2

Sink = Callable[[int, bytes], Awaitable[None]]
"""Receiver of output: gets a stream's number and some bytes; raises ConnectionError when it accepts no more."""

_PIPE_BYTES: Final = 1024 * 1024
"""Size of a pipe: the maximum without privileges (/proc/sys/fs/pipe-max-size). All pipes of a user together may get
less."""
_PIECE_BYTES: Final = 64 * 1024
"""Size of one read. More than malloc's threshold for mmap (engine/memory.py) would take twice as long."""
_SIZE: Final = struct.Struct("4H")  # struct winsize: rows, columns, two unused fields


class Stdio:
    """Streams of one command.

    The object exists before the command: an early client gets all output, and early input waits.
    """

    def __init__(self, *, terminal: bool = False, reads: bool = False, keeps: bool = True) -> None:
        self.terminal = terminal
        """Whether the command has a terminal, and therefore one stream of output."""
        self.sinks: list[Sink] = []
        """Attached clients; may grow at any time."""
        self.tail = OutputBuffer()
        self._keeps = keeps
        """Whether the end of the output is kept."""
        self.carried = 0
        """Bytes read from the command so far."""
        self.writing = 0
        """Number of streams that wait for a client to take their bytes."""
        self._reads = reads
        self._ours: dict[int, int] = {}
        """The pilot's ends by stream; 0 is the command's input. A terminal has one descriptor for all."""
        self._theirs: tuple[int, ...] = ()
        self._ready = asyncio.Event()
        self._size: tuple[int, int] | None = None
        self._waits: dict[asyncio.Future[None], tuple[int, Callable[[int], object]]] = {}
        """Waiters for one of the pilot's ends, each with the function that unregisters it from the loop."""
        self._input = asyncio.Lock()
        """The loop accepts one writer for a descriptor."""
        self._hung_up = False

    def __enter__(self) -> Self:
        """Create the pipes."""
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
        """Close all descriptors."""
        self.hand_over()
        self.close()
        self._ready.set()

    def close(self) -> None:
        """Close the pilot's ends: the output ends here, and a command that writes on gets SIGPIPE."""
        ours, self._ours = set(self._ours.values()), {}
        for descriptor in ours:
            self._let_go(descriptor)

    def _let_go(self, descriptor: int) -> None:
        """Close one of the pilot's ends, and wake its waiters before another file gets its number."""
        for ready in [future for future, (waited, _) in self._waits.items() if waited == descriptor]:
            _, forget = self._waits.pop(ready)
            forget(descriptor)
            if not ready.done():
                ready.set_result(None)
        os.close(descriptor)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Standard input, output and error for the command; empty for a command with a terminal."""
        return self._theirs

    def hand_over(self) -> None:
        """Close the pilot's copies of the command's ends, so that the streams end with the command."""
        theirs, self._theirs = self._theirs, ()
        for descriptor in theirs:
            os.close(descriptor)

    def use_terminal(self, descriptor: int) -> None:
        """Use the master side of the command's terminal."""
        if self._hung_up:
            os.close(descriptor)
            return
        os.set_blocking(descriptor, False)
        self._ours = {0: descriptor, STDOUT: descriptor}
        if self._size is not None:
            self.resize(*self._size)
        self._ready.set()

    async def send_line(self, text: str) -> None:
        """Send the attached clients a line of the pilot's own."""
        await self._give(STDOUT, f"{text}\r\n".encode())

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size; before there is a terminal, set its initial size."""
        self._size = (rows, columns)
        if self.terminal and self._ours:
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self._ours[0], termios.TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))

    async def write(self, data: bytes) -> None:
        """Write `data` to the command's standard input as the command reads, as soon as there is a command."""
        await self._ready.wait()
        rest = memoryview(data)
        async with self._input:
            while rest and 0 in self._ours:
                try:
                    rest = rest[os.write(self._ours[0], rest) :]
                except BlockingIOError:
                    await self._until_ready(self._ours[0], write=True)
                except OSError:  # the command has closed its end
                    return

    async def end_input(self) -> None:
        """Close the command's standard input. A terminal has no end of input except a typed one."""
        await self._ready.wait()
        if not self.terminal and 0 in self._ours:
            self._let_go(self._ours.pop(0))

    def hang_up(self) -> None:
        """Handle the disconnection of all clients: end the input, or hang up the terminal (SIGHUP)."""
        self._hung_up = True
        if self.terminal:
            self.close()
        elif 0 in self._ours:
            self._let_go(self._ours.pop(0))

    async def pump(self) -> None:
        """Carry the output until the last writer has closed it."""
        async with asyncio.TaskGroup() as streams:
            for stream in [number for number in self._ours if number in (STDOUT, STDERR)]:
                streams.create_task(self._carry(stream), name=f"stream {stream}")

    async def _carry(self, stream: int) -> None:
        while data := await self._read(stream):
            self.carried += len(data)
            if self._keeps:
                self.tail.add(stream, data)
            await self._give(stream, data)

    async def _read(self, stream: int) -> bytes:
        """Return the next bytes; empty at the end."""
        await asyncio.sleep(0)  # a command that writes continuously must not block the loop
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
                    logger.info("A client of a command's output has disconnected.")
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
