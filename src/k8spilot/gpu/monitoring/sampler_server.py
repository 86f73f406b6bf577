"""The engine's end of the sampler's socket.

Only the engine's container and the sampler's container mount the volume with the socket. If the engine is root, no
other user can write there (engine/app.py). The kernel identifies the client. The engine validates messages
(protocol.py) and reads them at its own pace: a sampler that sends without end has to wait.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from k8spilot.common.aio import restarting
from k8spilot.common.files import replaced
from k8spilot.common.peer_credentials import peer_of
from k8spilot.gpu.monitoring.protocol import SIZE, Figures, Hello, Nonsense, figures, hello
from k8spilot.gpu.monitoring.sampler import END, GO, RENEW, SOCKET

logger = logging.getLogger(__name__)

UID: Final = 65533
"""The sampler's uid. No other container of the pod has it."""

_HELLO_SECONDS: Final = 10.0
_PACE_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 60.0
"""Silence after which a sampler counts as hung, for example in the driver: it reports every few seconds."""


class SamplerServer:
    """Accepts samplers, one at a time."""

    def __init__(
        self,
        folder: Path,
        judge: Callable[[Hello], bool],
        take: Callable[[Figures], bool],
        lost: Callable[[], None],
        uid: int = UID,
    ) -> None:
        """Initialize without I/O.

        Args:
            folder: mount path of the volume.
            judge: returns whether a sampler is accepted, from its hello.
            take: receives each later message, and returns whether the sampler should continue.
            lost: called when an accepted sampler is gone.
            uid: uid of the samplers.
        """
        self._folder = folder
        self._judge = judge
        self._take = take
        self._lost = lost
        self._uid = uid

    async def __aenter__(self) -> Self:
        """Listen."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._listen()
        except OSError:
            self._socket.close()
            raise
        self._serving = asyncio.create_task(
            restarting(self._serve, "the GPU sampler's socket"), name="GPU sampler's socket"
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.cancel()
        await asyncio.wait([self._serving])
        self._socket.close()

    def _listen(self) -> None:
        is_root = os.geteuid() == 0
        with replaced(self._folder / SOCKET) as aside:
            # Without root the owner cannot change; no other uid reaches the folder.
            before = os.umask(0o177 if is_root else 0o111)
            try:
                self._socket.bind(str(aside))
            finally:
                os.umask(before)
            if is_root:
                os.chown(aside, self._uid, -1)
            self._socket.listen(2)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                logger.warning("A connection of the GPU sampler could not be accepted: %s.", error)
                await asyncio.sleep(1)
                continue
            with connection:
                try:
                    await self._handle(connection)
                except (OSError, TimeoutError, Nonsense) as error:
                    logger.warning("The GPU sampler is disconnected: %s", str(error) or type(error).__name__)
            await asyncio.sleep(_PACE_SECONDS)

    async def _handle(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        pid, uid = peer_of(connection)
        if uid != self._uid:
            logger.warning("Process %d of uid %d is not a GPU sampler.", pid, uid)
            return
        async with asyncio.timeout(_HELLO_SECONDS):
            message = hello(await loop.sock_recv(connection, SIZE))
        if not self._judge(message):
            connection.send(END)
            return
        try:
            connection.send(GO)
            while True:
                async with asyncio.timeout(_SILENT_SECONDS):
                    data = await loop.sock_recv(connection, SIZE)
                if not data:
                    return
                if not self._take(figures(data)):
                    connection.send(RENEW)
                    return
                await asyncio.sleep(_PACE_SECONDS)
        finally:
            self._lost()
