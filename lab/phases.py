"""Accounting of a test's time by phase: lab, pilot, match, bind, job, clean-up.

The lab's helpers enter a phase; tests do not know of it. The test runner (tests/runner) reads the sums. Only the main
thread is counted, and a phase inside another interrupts it, so the sum of all phases is never more than the wall time.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

Phase = Literal["lab", "pilot", "match", "bind", "job", "clean-up"]

LAB: Final = "lab"
"""The test bed comes up, or its image is built."""
PILOT: Final = "pilot"
"""A pilot pod is deployed, until its slot is in the pool."""
MATCH: Final = "match"
"""A job waits, from its submission until its shadow begins the transfer of its files."""
BIND: Final = "bind"
"""From the end of the match until HTCondor's event log has the job's execution: the payload container gets its
image."""
JOB: Final = "job"
"""A job executes, until the event that ends it."""
CLEAN_UP: Final = "clean-up"
"""Jobs and pods are removed."""

_seconds: defaultdict[str, float] = defaultdict(float)
_open: list[str] = []
_since: float = 0.0


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count the time of the body as `name`; also usable as a decorator of a function."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _charge()
    _open.append(name)
    try:
        yield
    finally:
        _charge()
        _open.pop()


def take() -> dict[str, float]:
    """Return the seconds by phase since the last call, and begin again."""
    _charge()
    taken = dict(_seconds)
    _seconds.clear()
    return taken


def _charge() -> None:
    """Charge the time since the last change to the phase that is open."""
    global _since  # noqa: PLW0603 -- one account for each process
    now = time.monotonic()
    if _open:
        _seconds[_open[-1]] += now - _since
    _since = now
