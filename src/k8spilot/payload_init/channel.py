"""The pilot's end of payload-init's socket (payload-init.c describes the messages).

A channel speaks for one container: the peer's process id comes from the kernel (SO_PEERCRED), and the
channel closes the moment that process ends, so neither a lost container nor a forged report is taken for
the job's own end (listener.py: who may have one).
"""

import asyncio
import logging
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Final, TypeVar

from k8spilot.common.errors import PayloadLost
from k8spilot.common.peer_credentials import supplementary_groups
from k8spilot.payload_init.terminals import Terminal

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MESSAGE_SIZE: Final = 1024
_DESCRIPTORS: Final = 8
_THAW_SECONDS: Final = 2.0
"""payload-init ends at once on the kubelet's SIGTERM. One that does not has been stopped by its job."""
_LAST_STATUS: Final = 0xFFFF
"""Of what waitpid(2) gives."""


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
        self.error = 0
        """The errno by which it could not be run; 0 if there was none."""

    def lose(self) -> None:
        """Nothing more will be heard of it."""
        for future in (self.terminal, self.started, self.exited):
            future.cancel()


class Channel:
    """One payload-init that has connected.

    Raises:
        OSError: it has ended already.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.groups = supplementary_groups(pid)
        """Its supplementary groups, which its jobs have: the kernel's word, which no image can change."""
        loop = asyncio.get_running_loop()
        self._socket = connection
        self.pid = pid
        self._process = os.pidfd_open(pid)
        self.fresh = False
        self.scoped: bool | None = None
        """Whether the kernel keeps its processes from abstract sockets of other containers; None until it says so."""
        self.bind = ""
        """The change of image that the container was made for (kube/own_pod.py), as the kubelet took it."""
        self.cgroup: dict[str, int] = {}
        """Open files of the container's cgroup, by name."""
        self.hello: asyncio.Future[None] = loop.create_future()
        self._processes: dict[int, Process] = {}
        self.swept: asyncio.Future[None] = loop.create_future()
        self.leashed: asyncio.Future[int] = loop.create_future()
        """payload-init's answer to the last `leash`: an errno, or 0 when it has taken the terminal."""
        self._leash: Terminal | None = None
        """What was given to it, unless it could not take it."""
        self._cleared: asyncio.Future[None] | None = None
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

    def clear(self) -> asyncio.Future[None]:
        """Kill all processes of payload-init's user in the pod but itself, at once; what is returned is done then.

        Raises:
            PayloadLost: the container is gone.
        """
        self._cleared = asyncio.get_running_loop().create_future()
        self._send(b"clear")
        return self._cleared

    def kill(self) -> None:
        """End payload-init itself, and with it the container, whatever the job did to it (SIGSTOP, for one)."""
        if self.gone.done():
            return
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            logger.debug("%r has ended already.", self)
        except PermissionError:
            self._let_go()

    def leash(self, terminal: Terminal) -> None:
        """Have payload-init be killed by the end of `terminal`, for a pilot that may not signal it.

        `leashed` tells whether it could take that. The terminal goes back when payload-init has ended, or could not.

        Raises:
            PayloadLost: the container is gone.
        """
        self.leashed = asyncio.get_running_loop().create_future()
        self._leash = terminal
        try:
            self._send(b"leash", [terminal.slave])
        except PayloadLost:
            self._unleash()
            raise

    @property
    def is_leashed(self) -> bool:
        """Whether `kill` works for a pilot that may not signal it."""
        return self._leash is not None and self.leashed.done() and not self.leashed.cancelled()

    def _unleash(self) -> None:
        if self._leash is not None:
            terminal, self._leash = self._leash, None
            terminal.give_back()

    def _let_go(self) -> None:
        if self._leash is not None:
            terminal, self._leash = self._leash, None
            terminal.hang_up()
        else:
            logger.warning("%r cannot be killed: it is on no leash. The kubelet ends it after the grace period.", self)

    def close(self) -> None:
        """Let go of the connection; who waits for it learns that the container is lost."""
        if not self.open:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self.closed.set_result(None)
        for process in self._processes.values():
            process.lose()
        for future in (self.hello, self.swept, self.leashed):
            future.cancel()

    def release(self) -> None:
        """Close what outlives the connection: the cgroup's files, whose last figures are read after the end."""
        if self._leash is not None and not self._has_ended():
            self._let_go()
        self._lose()
        while self.cgroup:
            os.close(self.cgroup.popitem()[1])

    def _has_ended(self) -> bool:
        """Whether the process has, which the loop may not have told yet."""
        if not self.gone.done():
            waiting = select.poll()
            waiting.register(self._process, select.POLLIN)
            return bool(waiting.poll(0))
        return True

    def _lose(self) -> None:
        if not self.gone.done():
            asyncio.get_running_loop().remove_reader(self._process)
            os.close(self._process)
            self.gone.set_result(None)
            # Its last words count; whoever else has its end of the socket now does not speak for it.
            while self.open and self._read():
                pass
            self.close()
            self._unleash()

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
            case ["hello", "4", "fresh" | "used" as word, "scoped" | "open" as reach, bind, *names] if (
                len(set(names)) == len(descriptors) == len(names) and not self.hello.done()
            ):
                self.fresh, self.scoped = word == "fresh", reach == "scoped"
                self.bind = bind
                self.cgroup = dict(zip(names, descriptors, strict=True))
                descriptors.clear()
                known = _once(self.hello, None)
            case ["leash", error] if error.isdecimal() and self._leash is not None:
                known = _once(self.leashed, int(error))
                if int(error):
                    self._unleash()
            case ["swept"]:
                known = _once(self.swept, None)
            case ["cleared"]:
                known = self._cleared is not None and _once(self._cleared, None)
            case [what, number, *values] if number.isdecimal() and int(number) in self._processes:
                known = _hear_of(self._processes[int(number)], what, values, descriptors)
        return known


def _hear_of(process: Process, what: str, values: list[str], descriptors: list[int]) -> bool:
    match what, values:
        case "terminal", [] if len(descriptors) == 1 and not process.terminal.done():
            return _once(process.terminal, descriptors.pop())
        case "started", [_]:
            return _once(process.started, None)
        case "failed", [error, stage] if error.isdecimal():
            process.error = int(error)
            logger.info("Command %d could not be run: %s failed with errno %s.", process.number, stage, error)
            return _once(process.started, None)
        case "exit", [status] if status.isdecimal() and _is_end(int(status)):
            return _once(process.exited, int(status))
    return False


def _is_end(status: int) -> bool:
    """Whether it is the status of a process that has ended: others are those of one that was stopped."""
    return status <= _LAST_STATUS and (os.WIFEXITED(status) or os.WIFSIGNALED(status))


def _once(future: "asyncio.Future[T]", value: T) -> bool:
    """Set a result if there is none yet; False when there is."""
    if future.done():
        return False
    future.set_result(value)
    return True


async def thaw(channel: Channel | None) -> bool:
    """End a payload-init that its job has stopped: the kubelet would wait for the pod's whole grace period.

    Return whether it ended as it was told.
    """
    if channel is None or channel.gone.done():
        return False
    await asyncio.wait([channel.gone], timeout=_THAW_SECONDS)
    if not channel.gone.done():
        logger.warning("%r does not end as it is told to; it is killed.", channel)
        channel.kill()
        return False
    return True
