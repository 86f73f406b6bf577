"""The server for payload-init: a socket in the exchange volume, for one container at a time.

A process of the job can also connect. It is rejected, because only a container's first process has no parent in the
pod.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from k8spilot.common.aio import first_of, is_set, named
from k8spilot.common.files import replaced
from k8spilot.common.peer_credentials import peer_of
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.02
_HELLO_SECONDS: Final = 1.0


class PayloadInitServer:
    """Accepts payload-init, one container at a time."""

    def __init__(self, path: Path, uid: int, cgroup: str | None = None) -> None:
        self._path = path
        self._uid = uid
        self._cgroup = cgroup
        """Cgroup of the pilot container. No payload-init runs there, but programs of a job's user can
        (payload/scrub/processes.py). None outside of a container, in tests: any process of the uid is accepted then."""
        self._socket: socket.socket | None = None
        self.current: Channel | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        """Pause after a rejected connection: a job may connect in a loop."""
        self._arrived = asyncio.Condition()
        self._is_reported = False
        """Whether the missing isolation of abstract sockets was logged."""
        self._greetings: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen. The socket is renamed into place, so that payload-init never finds one without a listener."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with replaced(self._path) as aside:
            listening.bind(str(aside))
            aside.chmod(0o777)
            listening.listen(16)
            self._socket = listening
            asyncio.get_running_loop().add_reader(listening, self._accept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            if self._pause_timer is not None:
                self._pause_timer.cancel()
            self._socket.close()
            self._path.unlink(missing_ok=True)
        if self.current is not None:
            self.current.close()
            self.current.release()

    async def until(self, wanted: Callable[[Channel], bool]) -> Channel:
        """Wait for an open channel that has sent a hello and that `wanted` accepts. The caller sets the time limit."""
        async with self._arrived:
            while True:
                channel = self.current
                if channel is not None and is_set(channel.hello) and channel.still_open() and wanted(channel):
                    return channel
                await self._arrived.wait()

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            logger.warning("A connection of the payload container could not be accepted: %s.", error)
            self._pause()
            return
        connection.setblocking(False)
        pid, uid = peer_of(connection)
        busy = self.current is not None and self.current.still_open()
        if uid != self._uid or busy or not self._is_first(pid):
            logger.debug("Process %d of uid %d was rejected at payload-init's socket.", pid, uid)
            connection.close()
            self._pause()
            return
        try:
            channel = Channel(connection, pid)
        except OSError:  # it has ended already
            connection.close()
            return
        if self.current is not None:
            self.current.release()
        self.current = channel
        greeting = named(self._greet(channel))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    def _pause(self) -> None:
        loop, listening = asyncio.get_running_loop(), self._socket
        assert listening is not None
        loop.remove_reader(listening)
        self._pause_timer = loop.call_later(_PAUSE_SECONDS, loop.add_reader, listening, self._accept)

    def _is_first(self, pid: int) -> bool:
        """Return whether a process is the first one of another container than the pilot's."""
        if self._cgroup is None:
            return True
        try:
            return psutil.Process(pid).ppid() == 0 and Path(f"/proc/{pid}/cgroup").read_text() != self._cgroup
        except (OSError, psutil.NoSuchProcess):  # it has ended already
            return False

    async def _greet(self, channel: Channel) -> None:
        """Notify waiting tasks of a channel's hello. Close a channel without one."""
        await first_of(channel.hello, channel.closed, seconds=_HELLO_SECONDS)
        if not is_set(channel.hello):
            channel.close()
        elif not channel.scoped and not self._is_reported:
            self._is_reported = True
            logger.warning(
                "Jobs can reach abstract Unix sockets of this pod's other containers: the node's kernel is older than "
                "Linux 6.12, or has no Landlock (docs/explanation/security.md)."
            )
        async with self._arrived:
            self._arrived.notify_all()
