"""Releasing a command in a container, with its streams."""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from k8spilot.common.errors import PilotError
from k8spilot.model.command import Command
from k8spilot.payload.stdio import Stdio
from k8spilot.payload_init.channel import Channel, Process

logger = logging.getLogger(__name__)


async def launch(channel: Channel, number: int, command: Command, stdio: Stdio) -> Process:
    """Hand `command` over, in memory that has no name, so that no other job can read it; its streams are open then.

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
            await stdio.tell(_NO_TERMINAL if process.error == errno.ENOSPC else _cannot_run(process.error))
    return process


_NO_TERMINAL: Final = (
    "k8spilot: the node has no terminal left for this session (kernel.pty.max, for all of its containers together); "
    "try again in a while, or run the command without a terminal."
)


def _cannot_run(error: int) -> str:
    return f"k8spilot: the container has no terminal for this session ({os.strerror(error)}); run it without one."


async def first_of(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of `futures` is done, or time is up."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def side_by_side(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Do `works` for as long as the context lasts; at its end the rest is cancelled, and nothing of it goes on.

    What fails beside the one that was waited for is dropped if it is a PilotError, and else logged as a fault of ours.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, PilotError):
                logger.error("%s failed; this is a fault of k8spilot.", task.get_coro(), exc_info=error)


def is_set(future: asyncio.Future[Any]) -> bool:
    """Whether `future` has a result."""
    return future.done() and not future.cancelled()
