"""A program in a process group of its own, which does not outlive the runner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

KILL_SECONDS: Final = 60
"""After the interruption of a session: for the removal of pods."""


def run_group(command: Sequence[str], seconds: float, **options: Any) -> int:
    """Run a command in a process group of its own, with `options` of Popen; return its exit status.

    The group is interrupted after `seconds`, or if this process is interrupted, and killed a minute later or at the
    next interruption. Raises KeyboardInterrupt after the command's end if this process was interrupted.
    """
    # pytest's workers are in the group, so a limit ends them, too. Ctrl-C on the terminal reaches this process alone.
    with _interruptible():
        program = subprocess.Popen(command, process_group=0, **options)
        try:
            return program.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"the tests exceed their limit of {seconds:g} s and are interrupted", file=sys.stderr)
            return _interrupted(program)
        except KeyboardInterrupt:
            words = f"the tests remove their pods, which takes up to {KILL_SECONDS} s; Ctrl-C again kills the tests"
            print(f"\ninterrupted: {words}", file=sys.stderr)
            _interrupted(program)
            raise
        finally:
            if program.poll() is None:  # after the next interruption, at any place above
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()


def _interrupted(program: subprocess.Popen[bytes]) -> int:
    """Interrupt a process group, and kill it if it does not end in time; return the exit status of its leader."""
    os.killpg(program.pid, signal.SIGINT)  # the leader is not reaped, so there is a group
    try:
        return program.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        return program.wait()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let a request to end, or the end of the terminal, interrupt this process as Ctrl-C does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
