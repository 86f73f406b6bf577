"""Processes that an earlier container of this pilot has left in the pod.

When a container's first process dies and the pod's containers share their process namespace, containerd kills the
container's other processes (ShouldKillAllOnExit in its runc shim). CRI-O does not: the kubelet starts the next
container beside them. Then two HTCondors would take jobs under one name, and the old engine would hold the ports.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.common.proc import PROC, Process, kill_until_gone, own_cgroup, processes

_KILL_SECONDS: Final = 10.0
_MODULES: Final = {"engine": "k8spilot.engine", "condor": "k8spilot.condor.agent"}
_DAEMONS: Final = frozenset({"condor_master", "condor_startd", "condor_starter", "condor_procd", "condor_shared_port"})


def end_predecessor(services: Collection[str], proc: Path = PROC, kill: Callable[[int, int], None] = os.kill) -> int:
    """Kill all processes of containers that ran the same services before this one. Blocks for up to 10 s.

    A process of the engine or of HTCondor with this user in another control group shows such a container. A job can
    give its process any name, but not this real user id.

    Args:
        services: `engine`, `condor` or both: what this container runs.
        proc: the proc file system, of the pod and not of the node.
        kill: sends a signal to a process id.

    Returns:
        Number of killed processes.

    Raises:
        OSError: some processes do not end.
    """
    groups = set(_groups(services, proc))

    def find() -> list[int]:
        return [one.pid for one in processes(proc) if _group(one) in groups]

    return len(kill_until_gone(find, "of an earlier pilot container", _KILL_SECONDS, kill))


def _groups(services: Collection[str], proc: Path) -> Iterator[str]:
    """Yield the control groups of the other containers in which one of the services runs."""
    own, user = own_cgroup(proc), os.getuid()
    for process in processes(proc):
        with suppress(OSError):
            if process.uids[0] == user and _is_service(services, process.command_line()) and process.cgroup() != own:
                yield process.cgroup()


def _is_service(services: Collection[str], words: list[str]) -> bool:
    program = Path(words[0]).name
    if "condor" in services and program in _DAEMONS:
        return True
    return program.startswith("python") and any(_MODULES[service] in words for service in services)


def _group(process: Process) -> str | None:
    with suppress(OSError):
        return process.cgroup()
    return None
