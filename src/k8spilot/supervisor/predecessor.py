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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
_MODULES: Final = {"engine": "k8spilot.engine", "condor": "k8spilot.condor.agent"}
_DAEMONS: Final = frozenset({"condor_master", "condor_startd", "condor_starter", "condor_procd", "condor_shared_port"})
_PROC: Final = Path("/proc")


def end_predecessor(services: Collection[str], proc: Path = _PROC, kill: Callable[[int, int], None] = os.kill) -> int:
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
    own = (proc / "self/cgroup").read_text()
    user = _real_user(_status(proc / "self"))
    groups = {
        one.group
        for one in _processes(proc)
        if one.group != own and one.user == user and _is_service(services, one.words)
    }
    killed: set[int] = set()
    deadline = time.monotonic() + _SECONDS
    while left := [one.pid for one in _processes(proc) if one.group in groups]:
        if time.monotonic() > deadline:
            raise OSError(f"processes {', '.join(map(str, left))} of an earlier pilot container do not end")
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(_PAUSE_SECONDS)
    return len(killed)


def _is_service(services: Collection[str], words: list[str]) -> bool:
    program = Path(words[0]).name
    if "condor" in services and program in _DAEMONS:
        return True
    return program.startswith("python") and any(_MODULES[service] in words for service in services)


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    user: str
    """The real user id: HTCondor's daemons change the effective one."""
    group: str
    words: list[str]


def _processes(proc: Path) -> Iterator[_Process]:
    """Yield the processes but zombies."""
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            facts = _status(folder)
            if facts[b"State"].split()[0] not in b"ZX":
                user = _real_user(facts)
                yield _Process(int(folder.name), user, (folder / "cgroup").read_text(), words)


def _status(folder: Path) -> dict[bytes, bytes]:
    """Return the fields of a process's status (proc(5)). A job chooses its name, of any bytes but a line feed."""
    fields: dict[bytes, bytes] = {}
    for line in (folder / "status").read_bytes().split(b"\n"):
        name, _, value = line.partition(b":\t")
        fields.setdefault(name, value)
    return fields


def _real_user(facts: dict[bytes, bytes]) -> str:
    return facts[b"Uid"].split()[0].decode()
