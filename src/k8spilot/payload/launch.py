"""Releasing a command in a container, with its streams."""

import asyncio
import os
from typing import Any

from k8spilot.model.command import Command
from k8spilot.payload.stdio import Stdio
from k8spilot.payload_init.channel import Channel, Process


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
    return process


async def first_of(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of `futures` is done, or time is up."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def is_set(future: asyncio.Future[Any]) -> bool:
    """Whether `future` has a result."""
    return future.done() and not future.cancelled()
