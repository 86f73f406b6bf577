"""Where payload-init connects to: a socket in the exchange volume, which one container at a time speaks over.

A process of the job can connect, too; it is turned away, because only a container's first process has no parent in
the pod.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from k8spilot.common.peer_credentials import peer_of
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

SOCKET: Final = "payload.sock"
"""Name of the socket in the exchange volume."""

_REST_SECONDS: Final = 0.02
_HELLO_SECONDS: Final = 1.0


class PayloadInitServer:
    """Where payload-init connects to. One container at a time speaks."""

    def __init__(self, path: Path, uid: int, cgroup: str | None = None) -> None:
        self._path = path
        self._uid = uid
        self._cgroup = cgroup
        """Of the pilot container: no payload-init is in there, but programs of a job's user can be
        (payload/scrub/processes.py). None where there is no pod, and any process of the uid is let in."""
        self._socket: socket.socket | None = None
        self.current: Channel | None = None
        self._rest: asyncio.TimerHandle | None = None
        """Set for a moment after somebody was turned away: a job may connect without end."""
        self._arrived = asyncio.Condition()
        self._is_told = False
        """That the kernel does not keep jobs from other containers' abstract sockets."""
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
            if self._rest is not None:
                self._rest.cancel()
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
            self._pause()
            return
        connection.setblocking(False)
        pid, uid = peer_of(connection)
        busy = self.current is not None and self.current.still_open()
        if uid != self._uid or busy or not self._is_first(pid):
            logger.debug("Process %d of uid %d was turned away from payload-init's socket.", pid, uid)
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
        greeting = asyncio.ensure_future(self._greet(channel))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    def _pause(self) -> None:
        loop, listening = asyncio.get_running_loop(), self._socket
        assert listening is not None
        loop.remove_reader(listening)
        self._rest = loop.call_later(_REST_SECONDS, loop.add_reader, listening, self._accept)

    def _is_first(self, pid: int) -> bool:
        """Whether it is the first process of another container than the pilot's."""
        if self._cgroup is None:
            return True
        try:
            return psutil.Process(pid).ppid() == 0 and Path(f"/proc/{pid}/cgroup").read_text() != self._cgroup
        except (OSError, psutil.NoSuchProcess):  # it has ended already
            return False

    async def _greet(self, channel: Channel) -> None:
        """Tell who waits that a channel has said hello; one that does not soon is closed."""
        await asyncio.wait([channel.hello, channel.closed], timeout=_HELLO_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not channel.hello.done():
            channel.close()
        elif channel.scoped is False and not self._is_told:
            self._is_told = True
            logger.warning(
                "Jobs reach abstract Unix sockets of this pod's other containers: the node's kernel is older than "
                "Linux 6.12, or has no Landlock (docs/explanation/security.md)."
            )
        async with self._arrived:
            self._arrived.notify_all()
