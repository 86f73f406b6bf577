"""The pilot's end of payload-init's socket (payload-init.c describes the messages).

A channel speaks for one container: the peer's process id comes from the kernel (SO_PEERCRED), and the
channel closes the moment that process ends, so neither a lost container nor a forged report is taken for
the job's own end. A process of the job can connect too; it is turned away while payload-init lives, and
what it says while it does not is worth nothing, because a run is only ever sent to the channel that is
open after the pod's status has shown the new container (payload/runner.py).
"""

import asyncio
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from k8spilot.errors import PayloadLost

logger = logging.getLogger(__name__)

T = TypeVar("T")

SOCKET: Final = "payload.sock"
"""Name of the socket in the exchange volume."""

_MESSAGE_SIZE: Final = 1024
_DESCRIPTORS: Final = 8
_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Process:
    """A command in the container."""

    def __init__(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.terminal: asyncio.Future[int] = loop.create_future()
        """Descriptor of the master side of its terminal, if it has one; whoever takes it closes it."""
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when the command runs, or could not be run (an exit follows)."""
        self.exited: asyncio.Future[int] = loop.create_future()
        """Its wait status (waitpid(2)); cancelled when the container ended without telling."""

    def lose(self) -> None:
        """Nothing more will be heard of it."""
        for future in (self.terminal, self.started, self.exited):
            future.cancel()


class Channel:
    """One payload-init that has connected."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        loop = asyncio.get_running_loop()
        self._socket = connection
        self.pid = pid
        self._process = os.pidfd_open(pid)
        self.fresh = False
        self.cgroup: dict[str, int] = {}
        """Open files of the container's cgroup, by name."""
        self.hello: asyncio.Future[None] = loop.create_future()
        self._processes: dict[int, Process] = {}
        self.swept: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when its end of the socket is closed, which it can do before it ends."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the process has ended."""
        loop.add_reader(connection, self._read)
        loop.add_reader(self._process, self._lose)  # a pidfd can be read when its process has ended (pidfd_open(2))

    def __repr__(self) -> str:
        return f"<payload-init {self.pid}{'' if self.open else ', gone'}>"

    @property
    def open(self) -> bool:
        """Whether the process still holds its end."""
        return not self.closed.done()

    def still_open(self) -> bool:
        """As `open`, but asks the kernel, for when the end of the stream may not have been read yet."""
        if self.open:
            try:
                if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                    self.close()
            except BlockingIOError:
                pass
            except OSError:
                self.close()
        return self.open

    def run(self, number: int, descriptors: Sequence[int], *, terminal: bool = False) -> Process:
        """Execute a command: the job's own has number 0.

        Args:
            number: a fresh one for every command.
            descriptors: of the command's text, and of stdin, stdout and stderr unless it gets a terminal.
            terminal: make one in the container.

        Raises:
            PayloadLost: the container is gone.
        """
        process = self._processes[number] = Process(number)
        self._send(b"run %d%s" % (number, b" terminal" if terminal else b""), descriptors)
        return process

    def signal(self, number: int) -> None:
        """Send a signal to the job's own process, if it still runs."""
        self._send(b"signal %d" % number)

    def pause(self) -> None:
        """Stop every process of the container but payload-init."""
        self._send(b"pause")

    def resume(self) -> None:
        """Let them go on."""
        self._send(b"resume")

    def sweep(self) -> None:
        """Kill all that is left in the container; `swept` is done when nothing is."""
        self._send(b"sweep")

    def kill(self) -> None:
        """End payload-init itself, and with it the container, whatever the job did to it (SIGSTOP, for one)."""
        if self.gone.done():
            return
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            logger.debug("%r has ended already.", self)

    def close(self) -> None:
        """Let go of the connection; who waits for it learns that the container is lost."""
        if not self.open:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self.closed.set_result(None)
        for process in self._processes.values():
            process.lose()
        for future in (self.hello, self.swept):
            future.cancel()

    def release(self) -> None:
        """Close what outlives the connection: the cgroup's files, whose last figures are read after the end."""
        self._lose()
        while self.cgroup:
            os.close(self.cgroup.popitem()[1])

    def _lose(self) -> None:
        if not self.gone.done():
            asyncio.get_running_loop().remove_reader(self._process)
            os.close(self._process)
            self.gone.set_result(None)
            # Its last words count; whoever else has its end of the socket now does not speak for it.
            while self.open and self._read():
                pass
            self.close()

    def _send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        try:
            if not self.open:
                raise BrokenPipeError
            if descriptors:
                socket.send_fds(self._socket, [message], descriptors)
            else:
                self._socket.send(message)
        except OSError as error:
            raise PayloadLost(
                "the payload container ended under the job, which has no result; it goes back to the queue"
            ) from error

    def _read(self) -> bool:
        """Take one message in; False when there is none now."""
        try:
            data, descriptors, _flags, _address = socket.recv_fds(self._socket, _MESSAGE_SIZE, _DESCRIPTORS)
        except BlockingIOError:
            return False
        except OSError:
            data, descriptors = b"", []
        if not data:
            self.close()
        elif not self._hear(data.decode("ascii", "replace").split(" "), descriptors):
            logger.warning("%r said what it cannot mean (%r); it is cut off.", self, data[:80])
            self.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _hear(self, words: list[str], descriptors: list[int]) -> bool:
        """Take a message in, and the descriptors that it is to have; False when it makes no sense now."""
        known = False
        match words:
            case ["hello", "2", "fresh" | "used" as word, *names] if (
                len(set(names)) == len(descriptors) == len(names) and not self.hello.done()
            ):
                self.fresh = word == "fresh"
                self.cgroup = dict(zip(names, descriptors, strict=True))
                descriptors.clear()
                known = _once(self.hello, None)
            case ["swept"]:
                known = _once(self.swept, None)
            case [what, number, *values] if number.isdecimal() and int(number) in self._processes:
                known = _hear_of(self._processes[int(number)], what, values, descriptors)
        return known


def _hear_of(process: Process, what: str, values: list[str], descriptors: list[int]) -> bool:
    match what, values:
        case "terminal", [] if len(descriptors) == 1 and not process.terminal.done():
            return _once(process.terminal, descriptors.pop())
        case "started", [_]:
            return _once(process.started, None)
        case "failed", [error, stage]:
            logger.info("Command %d could not be run: %s failed with errno %s.", process.number, stage, error)
            return _once(process.started, None)
        case "exit", [status] if status.isdecimal():
            return _once(process.exited, int(status))
    return False


def _once(future: "asyncio.Future[T]", value: T) -> bool:
    """Set a result if there is none yet; False when there is."""
    if future.done():
        return False
    future.set_result(value)
    return True


class Listener:
    """Where payload-init connects to. One container at a time speaks."""

    def __init__(self, path: Path, uid: int, cgroup: str | None = None) -> None:
        self._path = path
        self._uid = uid
        self._cgroup = cgroup
        """Of the pilot container: no payload-init is in there, but programs of a job's user can be (sandbox.py)."""
        self._socket: socket.socket | None = None
        self.current: Channel | None = None
        self._arrived = asyncio.Condition()
        self._greetings: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen. Renamed into place once it listens: payload-init never meets a socket that nobody serves."""
        aside = self._path.with_name(f".{self._path.name}.new")
        aside.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        listening.bind(str(aside))
        aside.chmod(0o777)
        listening.listen(16)
        self._socket = listening
        asyncio.get_running_loop().add_reader(listening, self._accept)
        aside.rename(self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._path.unlink(missing_ok=True)
        if self.current is not None:
            self.current.close()
            self.current.release()

    async def until(self, wanted: Callable[[Channel], bool]) -> Channel:
        """Wait for an open channel that has said hello and is the one `wanted`. The caller sets the time limit."""
        async with self._arrived:
            while True:
                channel = self.current
                if channel is not None and channel.hello.done() and channel.still_open() and wanted(channel):
                    return channel
                await self._arrived.wait()

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            logger.warning("A connection of the payload container could not be taken: %s.", error)
            return
        connection.setblocking(False)
        pid, uid, _gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        busy = self.current is not None and self.current.still_open()
        if uid != self._uid or busy or self._is_own(pid):
            logger.debug("Process %d of uid %d was turned away from payload-init's socket.", pid, uid)
            connection.close()
            return
        try:
            channel = Channel(connection, pid)
        except OSError:  # it has ended already
            connection.close()
            return
        if self.current is not None:
            self.current.release()
        self.current = channel
        greeting = asyncio.ensure_future(self._greet(channel))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    def _is_own(self, pid: int) -> bool:
        try:
            return self._cgroup is not None and Path(f"/proc/{pid}/cgroup").read_text() == self._cgroup
        except OSError:  # it has ended already
            return True

    async def _greet(self, channel: Channel) -> None:
        """Tell who waits that a channel has said hello; one that does not within a second is closed."""
        await asyncio.wait([channel.hello, channel.closed], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        if not channel.hello.done():
            channel.close()
        async with self._arrived:
            self._arrived.notify_all()
