"""A command of payload-init by its messages (messages.py), and the test whether a process is stopped."""

import asyncio
import logging

import psutil

from k8spilot.common.aio import set_once
from k8spilot.payload_init.messages import Exited, Failed, Report, Started, TerminalOpened

logger = logging.getLogger(__name__)


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

    def handle(self, report: Report, descriptors: list[int]) -> bool:
        """Handle a message about the command, and take its descriptor. Return whether the message is valid now."""
        match report:
            case TerminalOpened():
                if len(descriptors) != 1 or self.terminal.done():
                    return False
                return set_once(self.terminal, descriptors.pop())
            case Started():
                return set_once(self.started, None)
            case Failed(_, error, stage):
                self.error, self.failed_stage = error, stage
                logger.info("Command %d could not run: %s failed with errno %d.", self.number, stage, error)
                return set_once(self.started, None)
            case Exited(_, status):
                return set_once(self.exited, status)

    def lose(self) -> None:
        """Cancel the futures: no more messages will arrive."""
        for future in (self.terminal, self.started, self.exited):
            future.cancel()


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a tracer has stopped a process."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return True
