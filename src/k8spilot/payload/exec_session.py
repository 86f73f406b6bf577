"""A command that runs beside the job in its container: `docker exec`."""

import asyncio
import logging
import signal
from typing import Final

from k8spilot.common.errors import PayloadLost
from k8spilot.model.command import Command
from k8spilot.model.outcome import Outcome
from k8spilot.payload.launch import first_of, is_set, launch
from k8spilot.payload.stdio import Stdio
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 1.0
"""A process that the command left behind may hold its output for as long as the job runs; it is not waited for."""


class ExecSession:
    """One such command. It ends with the job at the latest."""

    def __init__(self, channel: Channel, number: int, command: Command, stdio: Stdio) -> None:
        self.stdio = stdio
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """Its result, once its output is carried."""
        self._channel = channel
        self._number = number
        self._command = command

    async def follow(self) -> None:
        """Release the command, carry its output, and find its result."""
        status = signal.SIGKILL.value
        try:
            with self.stdio:
                process = await launch(self._channel, self._number, self._command, self.stdio)
                pump = asyncio.ensure_future(self.stdio.pump())
                try:
                    await first_of(process.exited, self._channel.closed)
                    if is_set(process.exited):
                        status = process.exited.result()
                    await self._drain(pump)
                finally:
                    pump.cancel()
        except PayloadLost as error:
            logger.info("A command beside the job cannot run: %s.", error)
        finally:
            self.ended.set_result(Outcome.of(status))

    async def _drain(self, pump: asyncio.Future[None]) -> None:
        while not pump.done():
            before = self.stdio.carried
            await first_of(pump, seconds=_DRAIN_SECONDS)
            if self.stdio.carried == before and not self.stdio.writing:
                return
