"""Processes of the jobs' user in the pod: those of a job, and those that HTCondor ran as that user for it.

HTCondor runs programs as the jobs' account in the pilot container (condor_ssh_to_job's sshd, transfer plugins). All
containers of the pod share one namespace of processes. A process's container is known by its control group.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KILL_ROUNDS: Final = 250
_ROUND_SECONDS: Final = 0.02
_KILL_SECONDS: Final = 120.0


def own_cgroup() -> str:
    """The own control group, by which a container is told from the others of the pod (cgroups(7))."""
    return Path("/proc/self/cgroup").read_text()


def kill_all(uid: int) -> None:
    """Kill all processes of `uid` in the pod at once, payload-init too. Blocks: call it in a thread.

    A pilot that is not root cannot; `end_leftovers` tells what is left.
    """
    user = uid if os.geteuid() == 0 else None  # nobody else can be another
    with suppress(OSError, subprocess.SubprocessError):  # there may be none
        command = ["sh", "-c", "kill -KILL -1"]
        subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_KILL_SECONDS,
            user=user,
            cwd="/",
        )


def kill_outside(uid: int, cgroup: str) -> int:
    """Kill the processes of `uid` that are not in the control group `cgroup`: those of the payload container.

    Returns:
        How many there were.
    """
    killed = 0
    for process in _processes(uid):
        if process.cgroup == cgroup:
            continue
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed


def end_leftovers(uid: int, cgroup: str) -> None:
    """End what runs as `uid` between two jobs, and what it makes meanwhile: all but payload-init.

    Blocks: call it in a thread.

    Args:
        uid: the jobs' user.
        cgroup: the control group of the pilot container.

    Raises:
        OSError: some do not end.
    """
    for _ in range(_KILL_ROUNDS):
        left = [one.pid for one in _processes(uid) if one.cgroup == cgroup or not one.is_first]
        if not left:
            return
        for process in left:
            with suppress(ProcessLookupError, PermissionError):  # a pilot that is not root can only wait
                os.kill(process, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
    raise OSError(f"processes {', '.join(map(str, left))} of the jobs' account do not end")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    cgroup: str
    is_first: bool
    """Whether its parent is outside of the pod, as that of a container's first process is; nothing else's can be."""


def _processes(uid: int) -> Iterator[_Process]:
    """List those of the pod that are not dead and have `uid` for good: daemons have it for moments."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if folder.stat().st_uid not in (uid, 0):
                continue
            facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            if set(facts["Uid"].split()) == {str(uid)} and facts["State"].split()[0] not in "ZX":
                yield _Process(int(folder.name), (folder / "cgroup").read_text(), int(facts["PPid"]) == 0)
