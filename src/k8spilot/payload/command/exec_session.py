"""Commands in a container: the release of one with its streams, and commands beside the job (`docker exec`)."""

import asyncio
import errno
import logging
import os
import signal
from typing import Final

from k8spilot.common.aio import first_of, is_set, side_by_side
from k8spilot.common.errors import PayloadLost
from k8spilot.model.command import Command
from k8spilot.model.outcome import Outcome
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.process import Process

logger = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 1.0
"""Seconds without output before the session ends. A process that the command left behind may keep its output open for
as long as the job runs."""
_NO_TERMINAL: Final = (
    "k8spilot: the node has no terminal left for this session (kernel.pty.max, for all of its containers together); "
    "try again in a while, or run the command without a terminal."
)

_UNSTARTED: Final = {"receive", "start", "read", "pipe", "fork"}
"""Stages before the command has a process of its own, which writes its errors itself."""


async def launch(channel: Channel, number: int, command: Command, stdio: Stdio) -> Process:
    """Pass `command` to payload-init in unnamed memory, which no other job can read. Its streams are open then.

    Raises:
        PayloadLost: the container is gone.
    """
    memory = os.memfd_create("command", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(command.encode())
        process = channel.run(number, (memory, *stdio.descriptors), terminal=stdio.terminal)
    finally:
        os.close(memory)
        stdio.hand_over()
    if stdio.terminal:
        await first_of(process.terminal, process.exited)
        if is_set(process.terminal):
            stdio.use_terminal(process.terminal.result())
        elif process.error:
            await stdio.send_line(_NO_TERMINAL if process.error == errno.ENOSPC else _cannot_run(process.error))
    return process


def _cannot_run(error: int) -> str:
    return f"k8spilot: the container has no terminal for this session ({os.strerror(error)}); run it without one."


def _unstarted(process: Process) -> str:
    """Return why payload-init has started no process for the command; empty if it has, or writes the error itself."""
    if process.failed_stage not in _UNSTARTED:
        return ""
    if process.failed_stage == "receive":
        return (
            "k8spilot: payload-init cannot receive the command, because the job has lowered the limit of its open "
            "files (RLIMIT_NOFILE); no command can run beside this job."
        )
    return f"k8spilot: payload-init cannot {process.failed_stage} the command ({os.strerror(process.error)})."


class ExecSession:
    """A command beside the job. It ends with the job at the latest."""

    def __init__(self, channel: Channel, number: int, command: Command, stdio: Stdio) -> None:
        self.stdio = stdio
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """Result of the command, set after its output is carried."""
        self.problem = ""
        """Why the command has no process; empty if it had one."""
        self._channel = channel
        self._number = number
        self._command = command

    async def follow(self) -> None:
        """Release the command, carry its output, and find its result."""
        status = signal.SIGKILL.value
        try:
            with self.stdio:
                process = await launch(self._channel, self._number, self._command, self.stdio)
                async with side_by_side(self.stdio.pump()) as (pump,):
                    await first_of(process.exited, self._channel.closed)
                    if is_set(process.exited):
                        status = process.exited.result()
                        self.problem = _unstarted(process)
                    await self._drain(pump)
                    if self.problem:
                        await self.stdio.send_line(self.problem)
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
