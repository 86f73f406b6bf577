"""Processes that an earlier container of this pilot has left in the pod.

When a container's first process dies and the pod's containers share their process namespace, containerd kills the
container's other processes (ShouldKillAllOnExit in its runc shim). CRI-O does not: the kubelet starts the next
container beside them. Then two HTCondors would take jobs under one name, and the old engine would hold the ports.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
_MODULES: Final = {"engine": "k8spilot.engine", "condor": "k8spilot.condor.agent"}
_PROC: Final = Path("/proc")


def end_predecessor(services: Collection[str], proc: Path = _PROC, kill: Callable[[int, int], None] = os.kill) -> int:
    """Kill all processes of containers that ran the same services before this one. Blocks for up to 10 s.

    A process of the engine or of HTCondor in another control group shows such a container. A job can give its process
    such a name. That ends its own container only, which the start of a pilot ends anyway.

    Args:
        services: `engine`, `condor` or both: what this container runs.
        proc: the proc file system, of the pod and not of the node.
        kill: sends a signal to a process id.

    Returns:
        Number of signals sent.

    Raises:
        OSError: some processes do not end.
    """
    own = (proc / "self/cgroup").read_text()
    groups = {group for _, group, words in _processes(proc) if group != own and _is_service(services, words)}
    sent, deadline = 0, time.monotonic() + _SECONDS
    while left := [pid for pid, group, _ in _processes(proc) if group in groups]:
        if time.monotonic() > deadline:
            raise OSError(f"processes {', '.join(map(str, left))} of an earlier pilot container do not end")
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
                sent += 1
        time.sleep(_PAUSE_SECONDS)
    return sent


def _is_service(services: Collection[str], words: list[str]) -> bool:
    program = Path(words[0]).name
    if "condor" in services and program.startswith("condor_"):
        return True
    return program.startswith("python") and any(_MODULES[service] in words for service in services)


def _processes(proc: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the id, the control group and the command line of each process but zombies, which have no command line."""
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            if words[0]:
                yield int(folder.name), (folder / "cgroup").read_text(), words
