"""The processor time of all programs of the machine in a span of time, by the part that each has in a job."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.exits import Exits, by_process
from bench.figures import say
from lab.errors import LabError

_KERNEL: Final = "kernel threads"
_OTHER: Final = "other programs"
_ENGINE: Final = "engine, supervisor"
_BENCHMARK: Final = "the benchmark itself"
_NOBODY: Final = "interrupts, and what cannot be told"
_PARTS: Final[Mapping[str, str]] = {
    "condor_shadow": "condor_shadow",
    "condor_schedd": "condor_schedd",
    "condor_startd": "condor_startd",
    "condor_starter": "condor_starter",
    "condor_procd": "condor_procd",
    "condor_collecto": "collector, negotiator",
    "condor_negotiat": "collector, negotiator",
    "docker": "docker's client",
    "docker-client": "docker-client, engine-get",
    "engine-get": "docker-client, engine-get",
    "supervisor": _ENGINE,
    "dockerd": "dockerd, its containerd",
    "kubelet": "kubelet",
    "containerd-shim": "shim, runc",
    "runc": "shim, runc",
    "runc:[0:PARENT]": "shim, runc",
    "runc:[1:CHILD]": "shim, runc",
    "runc:[2:INIT]": "shim, runc",
    "payload-init": "payload-init (its start as runc's child, too), job",
    "work": "payload-init (its start as runc's child, too), job",
    "kube-apiserver": "API server, etcd",
    "etcd": "API server, etcd",
    "kube-controller": "controllers, scheduler",
    "kube-scheduler": "controllers, scheduler",
    "apptainer": "apptainer",
    "starter-suid": "apptainer",
    "starter": "apptainer",
    "squashfuse_ll": "apptainer",
    "fuse-overlayfs": "apptainer",
}
"""Part of each program, by the program's name in fifteen characters."""


@dataclass(frozen=True)
class _Living:
    part: str
    created: float
    seconds: float


@contextmanager
def used() -> Iterator[dict[str, float]]:
    """Give the processor seconds by part in the time of the context: empty before its end, and if not measurable."""
    found: dict[str, float] = defaultdict(float)
    with ExitStack() as stack:
        try:
            exits = stack.enter_context(Exits())
        except LabError as error:
            say(f"the processor time of programs is not measured: {error}")
            yield found
            return
        busy, before = _busy(), _living()
        yield found
        after, whole = _living(), _busy() - busy
    try:
        ended = by_process(exits.seen())
    except LabError as error:
        say(f"the processor time of programs is not known: {error}")
        return
    for pid, (name, seconds) in ended.items():
        if pid not in after:
            found[_PARTS.get(name, _OTHER)] += max(0.0, seconds - (before[pid].seconds if pid in before else 0))
    for pid, one in after.items():
        was = before.get(pid)
        found[one.part] += one.seconds - (was.seconds if was and was.created == one.created else 0.0)
    found[_NOBODY] = max(0.0, whole - sum(found.values()))


def _living() -> dict[int, _Living]:
    """Return all processes, with the processor time of each without its children."""
    found = {}
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                times = process.cpu_times()
                found[process.pid] = _Living(_part(process), process.create_time(), times.user + times.system)
        except psutil.Error:
            continue
    return found


def _part(process: psutil.Process) -> str:
    name = process.name()[:15]
    if process.ppid() == 2 or process.pid == 2:
        return _KERNEL
    if name == "containerd":
        return "containerd" if "k8spilot-lab/bin" in process.cmdline()[0] else _PARTS["dockerd"]
    if process.pid == os.getpid():
        return _BENCHMARK
    if name not in _PARTS:
        words = process.cmdline()
        if "k8spilot.engine" in words or any(word.endswith("supervisor/supervisor.py") for word in words):
            return _ENGINE
    return _PARTS.get(name, _OTHER)


def _busy() -> float:
    """Return the seconds that the machine's processors have worked, without the share that a hypervisor took."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, hard, soft = (int(word) for word in words[:7])
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")
