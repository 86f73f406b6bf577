"""A command of payload-init by its messages (payload-init.c), and the test whether a process is stopped."""

import asyncio
import logging
import os
from typing import Final

import psutil

from k8spilot.common.aio import set_once

logger = logging.getLogger(__name__)

_LAST_STATUS: Final = 0xFFFF
"""Highest status of waitpid(2)."""


class Process:
    """A command in the container."""

    def __init__(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.terminal: asyncio.Future[int] = loop.create_future()
        """Descriptor of the master side of its terminal, if it has one. The consumer closes it."""
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when the command runs, or failed to run (an exit follows)."""
        self.exited: asyncio.Future[int] = loop.create_future()
        """Wait status (waitpid(2)); cancelled when the container ended without a report."""
        self.error = 0
        """errno of a command that failed to run; 0 otherwise."""
        self.failed_stage = ""
        """Stage in which it failed, as payload-init names it."""

    def handle(self, word: str, values: list[str], descriptors: list[int]) -> bool:
        """Handle a message about the command, and take its descriptor. Return whether the message is valid now."""
        match word, values:
            case "terminal", [] if len(descriptors) == 1 and not self.terminal.done():
                return set_once(self.terminal, descriptors.pop())
            case "started", [_]:
                return set_once(self.started, None)
            case "failed", [error, stage] if error.isdecimal():
                self.error, self.failed_stage = int(error), stage
                logger.info("Command %d could not run: %s failed with errno %s.", self.number, stage, error)
                return set_once(self.started, None)
            case "exit", [status] if status.isdecimal() and _is_end(int(status)):
                return set_once(self.exited, int(status))
        return False

    def lose(self) -> None:
        """Cancel the futures: no more messages will arrive."""
        for future in (self.terminal, self.started, self.exited):
            future.cancel()


def _is_end(status: int) -> bool:
    """Return whether a wait status is that of an ended process. Others are of a stopped process."""
    return status <= _LAST_STATUS and (os.WIFEXITED(status) or os.WIFSIGNALED(status))


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a tracer has stopped a process."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return True
