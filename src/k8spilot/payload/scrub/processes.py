"""Processes of the jobs' user in the pod: those of a job, and those that HTCondor ran for it as that user.

HTCondor runs programs as the jobs' account in the pilot container (condor_ssh_to_job's sshd, transfer plugins). All
containers of the pod share one process namespace. The control group of a process identifies its container.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from k8spilot.common.proc import kill_until_gone, processes

_END_SECONDS: Final = 5.0
"""Limit of the end of killed processes."""
_KILL_SECONDS: Final = 120.0


def kill_all(uid: int) -> None:
    """Kill all processes of `uid` in the pod at once, including payload-init. Blocks: call it in a thread.

    A pilot without root cannot; `end_leftovers` reports the remaining ones.
    """
    user = uid if os.geteuid() == 0 else None  # only root can change its uid
    with suppress(OSError, subprocess.SubprocessError):  # there may be none
        command = ["sh", "-c", "kill -KILL -1"]  # by a process of that user: kill(2) with -1 spares its caller alone
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
    """Kill the processes of `uid` outside of the control group `cgroup`: those of the payload container.

    Returns:
        Number of killed processes.
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
    """End all processes of `uid` between two jobs, and those that they start meanwhile, except payload-init.

    Blocks: call it in a thread.

    Args:
        uid: uid of the jobs.
        cgroup: the control group of the pilot container.

    Raises:
        OSError: some processes do not end.
    """
    _end(lambda: [one.pid for one in _processes(uid) if one.cgroup == cgroup or not one.is_first])


def end_strays(uid: int, cgroup: str) -> None:
    """End all processes of `uid` outside of the control group `cgroup`, except payload-init, when no job runs.

    Blocks: call it in a thread.

    Raises:
        OSError: some processes do not end.
    """
    _end(lambda: [one.pid for one in _processes(uid) if one.cgroup != cgroup and not one.is_first])


def _end(find: Callable[[], list[int]]) -> None:
    kill_until_gone(find, "of the jobs' account", _END_SECONDS)  # a pilot without root can only wait


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    cgroup: str
    is_first: bool
    """Whether its parent is outside of the pod, which is true only for a container's first process."""


def _processes(uid: int) -> Iterator[_Process]:
    """Yield the pod's living processes that have `uid` permanently: daemons have it for moments."""
    for process in processes(owners=(uid, 0)):
        if set(process.uids) == {uid}:
            with suppress(FileNotFoundError, ProcessLookupError):
                yield _Process(process.pid, process.cgroup(), process.parent == 0)
