"""A program in a process group of its own. A time limit, or a signal to this process, interrupts the whole group.

subprocess.run kills its program a quarter of a second after Ctrl-C. A program that cleans up needs longer.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from k8spilot.common.aio import first_of, named, readable

EXCEEDED: Final = 124
"""Exit status of a program that exceeded its limit, as timeout(1) has it."""
KILL_SECONDS: Final = 45.0
"""Time from the interruption of a group to its kill. `.ci/run` kills a minute after it interrupts."""
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
    signalled = asyncio.Event()
    with asyncio.Runner() as runner:
        for number in _SIGNALS:
            # nohup ignores SIGHUP so that the program runs on. A shell ignores SIGINT for all that it starts with &.
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                runner.get_loop().add_signal_handler(number, signalled.set)
        program = subprocess.Popen(command, process_group=0, **options)
        cause = runner.run(_end(program, signalled, limit, kill_seconds))
        status = program.wait()
    if cause == "interrupted":
        raise KeyboardInterrupt
    return EXCEEDED if cause == "the time limit is exceeded" else status


async def _end(
    program: subprocess.Popen[bytes], signalled: asyncio.Event, limit: float | None, kill_seconds: float
) -> Literal["ended", "interrupted", "the time limit is exceeded"]:
    """Wait for the program's end; interrupt and kill its group where necessary. Return the cause of the end."""
    # A pidfd shows the end of the leader without reaping it. Until it is reaped, no other group can have its number.
    ended = named(readable(os.pidfd_open(program.pid)))
    await _first(ended, signalled, limit)
    if ended.done():
        return "interrupted" if signalled.is_set() else "ended"
    cause: Literal["interrupted", "the time limit is exceeded"]
    cause = "interrupted" if signalled.is_set() else "the time limit is exceeded"
    os.killpg(program.pid, signal.SIGINT)
    words = f"{cause}: waiting up to {kill_seconds:.0f} s until all is cleaned up; Ctrl-C kills at once"
    with suppress(OSError):  # the terminal may be gone, or the program that reads this
        print(f"\n{words}", file=sys.stderr, flush=True)
    await first_of(ended, seconds=_DOUBLED_SECONDS)
    signalled.clear()
    await _first(ended, signalled, kill_seconds - _DOUBLED_SECONDS)
    os.killpg(program.pid, signal.SIGKILL)
    return "interrupted" if signalled.is_set() else cause


async def _first(ended: asyncio.Task[None], signalled: asyncio.Event, seconds: float | None) -> None:
    """Wait for the program's end, a signal, or the end of the time."""
    waiting = named(signalled.wait())
    await first_of(ended, waiting, seconds=seconds)
    waiting.cancel()
