"""A program in a process group of its own, which a person or a time limit interrupts as a whole.

subprocess.run kills its program a quarter of a second after Ctrl-C. A program that cleans up needs longer.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

EXCEEDED: Final = 124
"""Exit status of a program that exceeded its limit, as of timeout(1)."""
KILL_SECONDS: Final = 45.0
"""From the interruption of a program to its kill. `.ci/run` kills a minute after it interrupts."""
_DOUBLED_SECONDS: Final = 1.0
"""Within this time, several signals are one interruption: make passes on a SIGTERM that its group got, too."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_group(
    command: Sequence[str], limit: float | None = None, *, kill_seconds: float = KILL_SECONDS, **options: Any
) -> int:
    """Run a program, with `options` of Popen; return its exit status, or 124 if it exceeded `limit` seconds.

    Its process group is interrupted (SIGINT) at the limit and when this process gets SIGINT, SIGTERM, SIGHUP or
    SIGQUIT. It is killed `kill_seconds` later (more than 1), or at the next such signal. Raises KeyboardInterrupt
    after the program's end if this process got a signal. Only the main thread can call it.
    """
    interruption = asyncio.Event()
    with asyncio.Runner() as runner:
        for number in _SIGNALS:
            # nohup has SIGHUP ignored, and the program runs on. A shell has SIGINT ignored for what it starts with &.
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                runner.get_loop().add_signal_handler(number, interruption.set)
        program = subprocess.Popen(command, process_group=0, **options)
        is_within_limit = runner.run(_end(program, interruption, limit, kill_seconds))
        status = program.wait()
    if interruption.is_set():
        raise KeyboardInterrupt
    return status if is_within_limit else EXCEEDED


async def _end(
    program: subprocess.Popen[bytes], interruption: asyncio.Event, limit: float | None, kill_seconds: float
) -> bool:
    """Wait for the program's end, and bring it about where necessary; return whether it ended within its limit.

    `interruption` is set afterwards if there was one.
    """
    # A pidfd tells the end of the leader without reaping it: until then no other group can have its number.
    pidfd = os.pidfd_open(program.pid)
    ended = asyncio.create_task(_readable(pidfd), name="the program's end")
    await _first(ended, interruption, limit)
    if ended.done():
        return True
    is_interrupted = interruption.is_set()
    os.killpg(program.pid, signal.SIGINT)
    _explain("interrupted" if is_interrupted else "the time limit is exceeded", kill_seconds)
    await asyncio.wait([ended], timeout=_DOUBLED_SECONDS)
    interruption.clear()
    await _first(ended, interruption, kill_seconds - _DOUBLED_SECONDS)
    os.killpg(program.pid, signal.SIGKILL)
    if is_interrupted:
        interruption.set()
    return is_interrupted


def _explain(why: str, kill_seconds: float) -> None:
    words = f"{why}: waiting up to {kill_seconds:.0f} s until all is cleaned up; Ctrl-C kills at once"
    with suppress(OSError):  # the terminal may be gone, or the program that reads this
        print(f"\n{words}", file=sys.stderr, flush=True)


async def _readable(descriptor: int) -> None:
    """Wait until the descriptor is readable, and close it."""
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _first(ended: asyncio.Task[None], interruption: asyncio.Event, seconds: float | None) -> None:
    """Wait for the program's end, a signal, or the end of the time."""
    waiting = asyncio.create_task(interruption.wait(), name="interruption")
    await asyncio.wait([ended, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
