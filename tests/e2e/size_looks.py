"""Looks at the sizes of a pod's payload containers: HTCondor's, those of the pod's spec and status, the cgroups' own.

While a process of a job runs, its container has the size that HTCondor has promised to that job, in all four places.
Between jobs the four differ for moments, as one follows the other.
"""

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from k8spilot.kube.resize import Room, actual_limits, limits_of, room
from k8spilot.model.quantity import quantity
from k8spilot.model.slot_sizes import Size, total
from lab import cgroups
from lab.pod_processes import uid_of
from tests.e2e.pool import Pool

_PERIOD_SECONDS: Final = 1.0
_PAYLOAD_INIT: Final = b"/k8spilot/bin/payload-init"
"""The first process of each payload container, and of no other."""
_START: Final = 19
"""Of what follows the name in /proc/<pid>/stat: when the process began (proc(5), field 22)."""
_MEMORY: Final = ("memory.max", "memory.limit_in_bytes")
_CPU: Final = ("cpu.max", "cpu.cfs_quota_us")
"""Files of a cgroup, versions 2 and 1."""


@dataclass(frozen=True)
class JobProcess:
    """A process of a job, and the limits of its container's cgroup."""

    pid: int
    began: str
    number: int
    """Number of the payload container."""
    job: str
    requested: Size
    promised: Size
    """HTCondor's dynamic slot as the job sees it (_CONDOR_MACHINE_AD)."""
    cgroup: Size


@dataclass(frozen=True)
class Look:
    """One look."""

    at: float
    """Seconds since 1970."""
    running: tuple[JobProcess, ...]
    """Processes that ran before the others were asked, and still ran afterwards."""
    ads: dict[str, tuple[str, Size]]
    """Job and size of HTCondor's dynamic slots, by their names."""
    spec: dict[int, Size]
    status: dict[int, Size | None]
    """Limits, by the numbers of the containers."""
    requests: Size
    """Sum of all containers' requests in the pod's spec."""


@dataclass
class Looks:
    """All looks at a pod."""

    pool: Pool
    containers: int
    looks: list[Look] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Disagreements."""
    fresh: int = 0
    """Number of times that the collector's ad had the job that ran. It follows the startd's within a moment."""
    room: Room | None = None
    """Resources that the payload containers may have together."""

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Look every second, in a thread of its own."""
        self._cgroups = Containers(uid_of(self.pool.lab, self.pool.pod))
        over = threading.Event()

        def look_often() -> None:
            while not over.is_set():
                began = time.monotonic()
                self._look()
                over.wait(max(0.0, _PERIOD_SECONDS - (time.monotonic() - began)))

        with ThreadPoolExecutor(1) as beside:
            looking = beside.submit(look_often)
            try:
                yield
            finally:
                over.set()
        looking.result()

    def _look(self) -> None:
        before = self._cgroups.processes()
        pod = self.pool.status()
        ads = _dynamic_slots(self.pool)
        after = {(one.pid, one.began) for one in self._cgroups.processes()}
        names = {number: f"payload-{number}" for number in range(1, self.containers + 1)}
        if self.room is None:
            self.room = room(pod, list(names.values()))
        assert self.room is not None, "the pod has resources of its own"
        containers = {one["name"]: one["resources"] for one in pod["spec"]["initContainers"]}
        look = Look(
            time.time(),
            tuple(one for one in before if (one.pid, one.began) in after),
            ads,
            {number: _size(containers[name]["limits"]) for number, name in names.items()},
            {number: actual_limits(pod, name) for number, name in names.items()},
            total(_size(containers[name]["requests"]) for name in names.values()),
        )
        self.looks.append(look)
        self.faults += [
            f"{one.job}: its cgroup has {one.cgroup}, and not {one.promised}" for one in before if _off(one)
        ]
        self.faults += [fault for one in look.running for fault in _disagreements(look, one)]
        self.fresh += sum(look.ads.get(f"slot1_{one.number}", ("",))[0] == one.job for one in look.running)
        if not look.requests.fits_in(self.room.requests):
            self.faults.append(f"the containers request {look.requests} of {self.room.requests}")
        if (memory := total(look.spec.values()).memory) > self.room.limits.memory:
            self.faults.append(f"the containers may use {memory} MiB of {self.room.limits}")


def _off(process: JobProcess) -> bool:
    return process.cgroup != limits_of(process.promised)


def _disagreements(look: Look, process: JobProcess) -> Iterator[str]:
    number, limits = process.number, limits_of(process.promised)
    job, size_of_slot = look.ads.get(f"slot1_{number}", ("", None))
    if job == process.job and size_of_slot != process.promised:
        yield f"{process.job} in container {number} has {process.promised}; HTCondor's slot has {size_of_slot}"
    for where, size in (("spec", look.spec[number]), ("status", look.status[number])):
        if size != limits:
            yield f"{process.job} in container {number} has {process.promised}; the pod's {where} has {size}"


def _size(values: dict[str, str]) -> Size:
    return Size(round(quantity(values["cpu"]) * 1000), int(quantity(values["memory"])) >> 20)


def _dynamic_slots(pool: Pool) -> dict[str, tuple[str, Size]]:
    query = f'K8SPodName == "{pool.pod}" && SlotType == "Dynamic"'
    command = ["condor_status", "-constraint", query, "-json", "-attributes", "Name,Memory,Cpus,JobId"]
    found: list[dict[str, Any]] = json.loads(pool.lab.access_point("alice", command) or "[]")
    return {
        ad["Name"].partition("@")[0]: (str(ad.get("JobId", "")), Size(int(ad["Cpus"]) * 1000, int(ad["Memory"])))
        for ad in found
    }


class Containers:
    """The cgroups of a pod's containers."""

    def __init__(self, uid: str) -> None:
        (self._memory,) = (folder for name in _MEMORY for folder in cgroups.of_pod(uid, name))
        (self._cpu,) = (folder for name in _CPU for folder in cgroups.of_pod(uid, name))

    def processes(self) -> list[JobProcess]:
        """Give one process of each job that runs."""
        found: dict[str, JobProcess] = {}
        for container in [one for one in self._memory.iterdir() if one.is_dir()]:
            with contextlib.suppress(OSError):
                pids = [int(line) for line in (container / "cgroup.procs").read_text().split()]
                if not any(_is_payload_init(pid) for pid in pids):
                    continue  # HTCondor's own programs for a job have its variables, too
                for process in filter(None, (self._process(pid, container.name) for pid in pids)):
                    found.setdefault(process.job, process)
        return list(found.values())

    def _process(self, pid: int, container: str) -> JobProcess | None:
        """Return a process if it is a job's: HTCondor's variables are in its environment."""
        try:
            folder = Path(f"/proc/{pid}")
            began = _began(folder)
            words = (folder / "environ").read_text(errors="replace").split("\0")
            environment = dict(word.partition("=")[::2] for word in words)
            if not (slot := environment.get("_CONDOR_SLOT", "")).startswith("slot1_"):
                return None
            machine, job = (_ad(folder / "root", environment[f"_CONDOR_{name}_AD"]) for name in ("MACHINE", "JOB"))
            size = self._limits(container)
            if _began(folder) != began:
                return None
        except (OSError, KeyError):  # it has ended
            return None
        return JobProcess(
            pid,
            began,
            int(slot.removeprefix("slot1_")),
            f"{job['ClusterId']}.{job['ProcId']}",
            Size(int(job["RequestCpus"]) * 1000, int(job["RequestMemory"])),
            Size(int(machine["Cpus"]) * 1000, int(machine["Memory"])),
            size,
        )

    def _limits(self, container: str) -> Size:
        memory = _first(self._memory / container, _MEMORY).split()[0]
        cpu = _first(self._cpu / container, _CPU).split()
        period = cpu[1] if len(cpu) == 2 else (self._cpu / container / "cpu.cfs_period_us").read_text()
        return Size(int(cpu[0]) * 1000 // int(period), int(memory) >> 20)


def _is_payload_init(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_PAYLOAD_INIT)
    except OSError:  # it has ended
        return False


def _first(folder: Path, names: tuple[str, ...]) -> str:
    return next(folder / name for name in names if (folder / name).exists()).read_text()


def _began(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[_START]


def _ad(root: Path, path: str) -> dict[str, str]:
    text = Path(f"{root}{path}").read_text()
    return dict(re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE))
