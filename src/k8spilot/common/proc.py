"""Processes as the proc file system shows them (proc(5)).

psutil searches the whole status for the user ids, so that the name of a job's process can imitate them. Here a field is
what a line begins with: the kernel escapes line feeds in a name, and lets most other bytes stand.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_KILL_PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has not ended. Its methods raise OSError if it has ended since."""

    folder: Path
    uids: tuple[int, ...]
    """Real, effective, saved and file system user id."""
    parent: int
    """Process id of the parent; 0: it is outside of the process namespace."""

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self.folder.name)

    def cgroup(self) -> str:
        """Return the control group, which distinguishes a container from the others of the pod (cgroups(7))."""
        return (self.folder / "cgroup").read_text()

    def command_line(self) -> list[str]:
        """Return the words of the command line, which the process may have changed."""
        return (self.folder / "cmdline").read_text(errors="replace").split("\0")


def own_cgroup(proc: Path = PROC) -> str:
    """Return the control group of this process; see `Process.cgroup`."""
    return (proc / "self/cgroup").read_text()


def status(folder: Path) -> dict[bytes, bytes]:
    """Return the fields of a process's status.

    Raises:
        OSError: the process has ended.
    """
    lines = (folder / "status").read_bytes().split(b"\n")
    return {name: value for name, _, value in (line.partition(b":\t") for line in lines)}


def processes(proc: Path = PROC, *, owners: Collection[int] = ()) -> Iterator[Process]:
    """Yield the processes of the namespace except zombies.

    Args:
        proc: the proc file system.
        owners: owners of the processes' folders, to read no other ones; empty: all. A process that is not dumpable has
            root's.
    """
    for folder in proc.glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if owners and folder.stat().st_uid not in owners:
                continue
            facts = status(folder)
            if facts[b"State"].split()[0] not in b"ZX":
                yield Process(folder, tuple(map(int, facts[b"Uid"].split())), int(facts[b"PPid"]))


def kill_until_gone(
    find: Callable[[], Collection[int]], whose: str, seconds: float, kill: Callable[[int, int], None] = os.kill
) -> set[int]:
    """Kill processes, and those that they start meanwhile, until none is left. Blocks.

    Args:
        find: returns the process IDs of those that are left.
        whose: owner of the processes for the error, a phrase with a preposition.
        seconds: limit of the wait for their end.
        kill: sends a signal to a process ID. Without the right to do so, only wait.

    Returns:
        IDs of the killed processes.

    Raises:
        OSError: some processes do not end.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while left := find():
        if time.monotonic() > deadline:
            raise OSError(f"processes {', '.join(map(str, left))} {whose} do not end")
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(_KILL_PAUSE_SECONDS)
    return killed
