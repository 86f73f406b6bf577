"""Processor time and memory of an execution point, without those of its jobs."""

from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.execution_points import BEFORE, DOCKER, K8SPILOT, VARIANTS, ExecutionPoint
from lab.dockerd import NAME as DOCKERD
from lab.processes import Daemons

_SCRIPT = (Path(__file__).parent / "scripts/used.sh").read_text()


@dataclass(frozen=True)
class Used:
    """Use of an execution point so far, without its jobs."""

    seconds: float
    """Processor seconds of HTCondor's container, and of dockerd where it needs one."""
    node: float
    """Processor seconds of the kubelet and containerd, which start k8spilot's containers. They serve all pods of the
    node."""
    mebibytes: float
    """Memory of HTCondor's container and dockerd, without the pages of files."""

    @classmethod
    def by(cls, point: ExecutionPoint) -> "Used":
        """Measure an execution point. Shims count as parts of the containers, in all contestants. Raises LabError."""
        nanoseconds, memory = (float(word) for word in point.inside(_SCRIPT).split()[:2])
        seconds, mebibytes, node = nanoseconds / 1e9, memory / 2**20, 0.0
        daemons = Daemons(point.lab.settings)
        if point.name == DOCKER and (dockerd := daemons.find(DOCKERD)) is not None:
            for process in (dockerd, *(one for one in dockerd.children() if one.name() == "containerd")):
                seconds += _processor(process)
                resident = process.memory_info()
                mebibytes += (resident.rss - resident.shared) / 2**20
        if point.name in (K8SPILOT, BEFORE, *VARIANTS):
            node = sum(_processor(process) for process in daemons.living("kubelet", "containerd"))
        return cls(seconds, node, mebibytes)

    def processor_since(self, before: "Used") -> float:
        """Return the processor seconds since `before`, those of `node` included."""
        return self.seconds + self.node - before.seconds - before.node


def _processor(process: psutil.Process) -> float:
    """Return the processor seconds that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)
