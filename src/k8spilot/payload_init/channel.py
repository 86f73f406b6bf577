"""The pilot's end of payload-init's socket (payload-init.c documents the messages).

A channel belongs to one container: the kernel identifies the client process (SO_PEERCRED), and the channel closes when
that process ends. So neither a lost container nor a forged message counts as the job's own end. server.py decides which
process gets a channel.

The life of a channel is three futures, each done once and in this order: `hello`, `closed`, `gone`. They take the place
of a state table, because callers wait for each of them. The other attributes are no states of the channel: `swept`,
`_cleared` and `_renewed` are answers to requests, which do not exclude each other. `killed` and `_hanging_up` belong to
`kill`. messages.py has the grammar of the messages, process.py the state of a command, leash.py that of the leash.
"""

import asyncio
import logging
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Final

from k8spilot.common.aio import first_of, is_set, set_once
from k8spilot.common.errors import PayloadLost
from k8spilot.common.peer_credentials import supplementary_groups
from k8spilot.payload_init.leash import Leash
from k8spilot.payload_init.messages import Answer, Cleared, Exited, Hello, LeashAnswer, Message, Renewal, Swept, parse
from k8spilot.payload_init.process import Process, is_stopped
from k8spilot.payload_init.terminals import Terminal

logger = logging.getLogger(__name__)

_MESSAGE_SIZE: Final = 1024
_DESCRIPTORS: Final = 16
_END_SECONDS: Final = 2.0
"""Seconds for payload-init to end, before its leash is hung up. It needs milliseconds if its job has not stopped it."""


class Channel:
    """A connected payload-init.

    Raises:
        OSError: the process has ended already.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.groups = supplementary_groups(pid)
        """Supplementary groups of payload-init and its jobs, from the kernel. An image cannot forge them."""
        loop = asyncio.get_running_loop()
        self._socket = connection
        self.pid = pid
        self._process = os.pidfd_open(pid)
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.cgroup: dict[str, int] = {}
        """Open files of the container's cgroup, by name; empty before the hello."""
        self.root: int | None = None
        """Open root folder of the container; None before the hello and after the process's end."""
        self._processes: dict[int, Process] = {}
        """Commands by number, until they end: the measurement of the disk starts one every few seconds."""
        self.swept: asyncio.Future[None] = loop.create_future()
        self.leash = Leash()
        self._hanging_up: asyncio.TimerHandle | None = None
        """Hangs up the leash, unless payload-init ends before, as `kill` has asked it to."""
        self._cleared: asyncio.Future[None] | None = None
        self._renewed: asyncio.Future[str] | None = None
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when its end of the socket is closed, which may happen before the process ends."""
        self.killed = False
        """Whether the pilot has killed it, or tried to."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the process has ended."""
        loop.add_reader(connection, self._read)
        loop.add_reader(self._process, self._lose)  # a pidfd becomes readable when its process ends (pidfd_open(2))

    def __repr__(self) -> str:
        return f"<payload-init {self.pid}{'' if self.open else ', gone'}>"

    @property
    def open(self) -> bool:
        """Whether the process still has its end of the socket open."""
        return not self.closed.done()

    @property
    def scoped(self) -> bool | None:
        """Whether the container's processes are isolated from abstract sockets of others; None before the hello."""
        return self.hello.result().scoped if is_set(self.hello) else None

    def still_open(self) -> bool:
        """Return the same as `open`, but check with the kernel: the end of the stream may be unread."""
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
            number: a new number for every command.
            descriptors: descriptors of the command's text, and of stdin, stdout and stderr unless it gets a terminal.
            terminal: create a terminal in the container.

        Raises:
            PayloadLost: the container has ended.
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
        """Continue the stopped processes."""
        self._send(b"resume")

    def sweep(self) -> None:
        """Kill all remaining processes of the container; `swept` is done when none is left."""
        self._send(b"sweep")

    def clear(self) -> asyncio.Future[None]:
        """Kill all processes of payload-init's user in the pod but itself. Return a future that is done then.

        Raises:
            PayloadLost: the container has ended.
        """
        self._cleared = asyncio.get_running_loop().create_future()
        self._send(b"clear")
        return self._cleared

    async def renew(self) -> str:
        """Make the container ready for another job, after a sweep. The caller sets the time limit.

        Returns:
            What the last job has changed or left, so that the container cannot run another job; empty if it can.

        Raises:
            PayloadLost: the container has ended.
        """
        renewed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._renewed = renewed
        self._send(b"renew")
        await first_of(renewed, self.closed)
        if not is_set(renewed):
            raise PayloadLost("the payload container has ended")
        if not (worn := renewed.result()):
            self.swept = asyncio.get_running_loop().create_future()
        return worn

    def kill(self) -> None:
        """Kill payload-init and with it the container, even if the job has stopped it (SIGSTOP).

        A pilot that may not signal it asks it first to end with all processes of its user. CRI-O would leave these
        running, and could not start the next container if they use up the pod's processes.
        """
        if self.gone.done() or self._hanging_up is not None:
            return
        self.killed = True
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            logger.debug("%r has ended already.", self)
        except PermissionError:
            self._ask_to_end()

    def _ask_to_end(self) -> None:
        try:
            self._send(b"end")
        except PayloadLost:
            self._let_go()
        else:
            seconds = 0.0 if is_stopped(self.pid) else _END_SECONDS
            self._hanging_up = asyncio.get_running_loop().call_later(seconds, self._let_go)

    def offer_leash(self, terminal: Terminal) -> None:
        """Offer payload-init a terminal whose end kills it, for a pilot that may not signal it.

        `leash.answer` has the result. The terminal is returned when payload-init has ended, or could not accept it.

        Raises:
            PayloadLost: the container has ended.
        """
        self.leash.offer(terminal)
        try:
            self._send(b"leash", [terminal.slave])
        except PayloadLost:
            self.leash.give_back()
            raise

    def _let_go(self) -> None:
        self._hanging_up = None
        if not self.leash.hang_up():
            logger.warning("%r cannot be killed: it has no leash. The kubelet kills it after the grace period.", self)

    def close(self) -> None:
        """Close the connection. Waiting tasks see that the container is lost."""
        if not self.open:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self.closed.set_result(None)
        for process in self._processes.values():
            process.lose()
        self.leash.cancel()
        for future in (self.hello, self.swept):
            future.cancel()

    def release(self) -> None:
        """Close the cgroup's files, which outlive the connection because their last figures are read after the end."""
        if not self._has_ended() and self.leash.hang_up():
            self.killed = True
        self._lose()
        while self.cgroup:
            os.close(self.cgroup.popitem()[1])

    def _has_ended(self) -> bool:
        """Return whether the process has ended, which the event loop may not have seen yet."""
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
            if self._hanging_up is not None:
                self._hanging_up.cancel()
            # Read its last messages. Another process that has its end of the socket now does not speak for it.
            while self.open and self._read():
                pass
            self.close()
            self.leash.give_back()
            if self.root is not None:  # it would keep the container's file system
                os.close(self.root)
                self.root = None

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
        """Read one message. Return whether there was one."""
        try:
            data, descriptors, _flags, _address = socket.recv_fds(self._socket, _MESSAGE_SIZE, _DESCRIPTORS)
        except BlockingIOError:
            return False
        except OSError:
            data, descriptors = b"", []
        if not data:
            self.close()
        elif (message := parse(data)) is None or not self._handle(message, descriptors):
            logger.warning("%r sent an invalid message (%r); it is disconnected.", self, data[:80])
            self.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _handle(self, message: Message, descriptors: list[int]) -> bool:
        """Handle a message, and take its descriptors. Return whether the message is valid now."""
        match message:
            case Hello():
                return self._handle_hello(message, descriptors)
            case Swept() | Cleared() | LeashAnswer() | Renewal():
                return self._handle_answer(message)
        process = self._processes.get(message.number)
        if process is None or not process.handle(message, descriptors):
            return False
        if isinstance(message, Exited):  # the last message of a command
            del self._processes[message.number]
        return True

    def _handle_answer(self, answer: Answer) -> bool:
        match answer:
            case Swept():
                return set_once(self.swept, None)
            case Cleared():
                return self._cleared is not None and set_once(self._cleared, None)
            case LeashAnswer(error):
                return self.leash.handle(error)
            case Renewal(worn):
                return self._renewed is not None and set_once(self._renewed, worn)

    def _handle_hello(self, hello: Hello, descriptors: list[int]) -> bool:
        if len(hello.names) != len(descriptors) or not set_once(self.hello, hello):
            return False
        self.cgroup = dict(zip(hello.names, descriptors, strict=True))
        self.root = self.cgroup.pop("root", None)
        descriptors.clear()
        return True
