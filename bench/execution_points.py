"""The contestants that are HTCondor execution points. Each is set up as its own operators would do it."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import apptainer_ep
from bench.job_times import whole
from bench.waterfall import marks
from lab import docker_ep, pilot
from lab.api import Lab
from lab.errors import LabError
from lab.jobs import Jobs, submit, wait_in_pool
from lab.jobs import words as describe
from lab.settings import PILOT_NAMESPACE, POOL_NAMESPACE

K8SPILOT = "k8spilot"
REUSING = "k8spilot with K8SPILOT_REUSE"
RELISTING = "k8spilot with the component relist"
VARIANTS = (REUSING, RELISTING)
"""Pilots whose settings differ from the manifests'."""
BEFORE = "k8spilot before"
"""The pilot of another commit."""
DOCKER = "docker universe on dockerd"
APPTAINER = "nested apptainer in a privileged pod"

PATIENCE_S = 180.0
"""Time limit of one job, from its submission or from the end of the job before it."""
_LOGS = "/var/log/condor/StarterLog.slot1*"


# Of each job of a pod with several payload containers. The node of the lab is small, so that the pod requests less of
# the CPUs than it may use.
_EACH_MEMORY_MB, _EACH_DISK_MB, _EACH_REQUEST_MILLI_CPUS = 256, 1300, 50
_WHOLE_CPUS = 4
"""CPUs of an execution point that has one slot and is not a pilot."""


@dataclass(frozen=True)
class ExecutionPoint:
    """One slot of the pool, or one partitionable slot for several jobs at a time."""

    lab: Lab
    name: str
    pod: str
    namespace: str
    container: str
    commands: Mapping[str, str] = field(default_factory=dict)
    """Submit commands that make a job run there."""
    takes_digests: bool = True
    """Whether an image may be named by tag and digest at once."""

    def submit(
        self,
        image: str,
        words: str,
        *,
        count: int = 1,
        commands: Mapping[str, str] | None = None,
        files: Mapping[str, str | bytes] | None = None,
    ) -> Jobs:
        """Submit jobs that run bench/payload/work.c with the arguments `words`. Raises LabError."""
        chosen = {
            "container_image": self.name_of(image),
            "executable": "/bin/work",
            "arguments": words,
            # Without it, HTCondor sleeps a second after the input transfer of each job, to tell new files by their
            # time stamps (FileTransfer::Reap in condor_utils/file_transfer.cpp).
            "transfer_output_files": '""',
            **self.commands,
            **(commands or {}),
        }
        return submit(self.lab, "alice", chosen, files=files, pilot=self.pod, count=count)

    def name_of(self, image: str) -> str:
        """Return the name of an image in a submit file for this execution point."""
        return f"docker://{image if self.takes_digests else image.partition('@')[0]}"

    def run(
        self, image: str, words: str = "now", *, count: int = 1, commands: Mapping[str, str] | None = None
    ) -> tuple[int, list[dict[str, float]]]:
        """Run `count` jobs in one claim; return their cluster and the times that each job printed.

        Raises LabError: a job failed, or printed no times.
        """
        with self.submit(image, words, count=count, commands=commands) as jobs:
            return jobs.cluster, self.collect(jobs)

    def collect(self, jobs: Jobs) -> list[dict[str, float]]:
        """Wait for the end of all jobs; return the times that each printed.

        Raises LabError: a job failed, or printed no times.
        """
        for proc in range(jobs.count):
            self.succeeded(jobs, proc)
        files = jobs.files()
        outputs = [files.get(f"out.{proc}", b"").decode(errors="replace") for proc in range(jobs.count)]
        return [whole(text, f"job {jobs.cluster}.{proc} ({self.name})") for proc, text in enumerate(outputs)]

    def succeeded(self, jobs: Jobs, proc: int = 0) -> None:
        """Wait for a job's end. Raises LabError: it took too long, or the job failed."""
        event = jobs.ended(proc, timeout=PATIENCE_S)
        if event.attributes.get("ReturnValue") != 0:
            raise LabError(f"job {jobs.cluster}.{proc} ({self.name}) failed: {describe(event)}")

    def inside(self, script: str) -> str:
        """Run a shell script in the container that has its HTCondor."""
        where = ("-n", self.namespace, self.pod, "-c", self.container)
        return self.lab.kubectl("exec", *where, "--", "sh", "-c", script)

    def starts(self, cluster: int) -> dict[int, float]:
        """Return the times at which the starter began the jobs of a cluster, in seconds since the epoch."""
        return {proc: one["starting"] for proc, one in self.marks(cluster).items()}

    def marks(self, cluster: int) -> dict[int, dict[str, float]]:
        """Return the times of the starter's marks of each job of a cluster (`bench.waterfall.marks`)."""
        return marks(self.starter_log(), cluster)

    def starter_log(self) -> str:
        """Return the log of its starters."""
        return self.inside(f"cat {_LOGS}")


def k8spilot(lab: Lab, name: str, slots: int = 1) -> contextlib.AbstractContextManager[ExecutionPoint]:
    """Deploy a pilot pod from the project's manifests; for several slots, as `k8spilot slots` makes it."""
    return _pilot(lab, name, K8SPILOT, overlay=_resources(slots) if slots > 1 else None, slots=slots)


def reusing(lab: Lab, name: str, slots: int = 1) -> contextlib.AbstractContextManager[ExecutionPoint]:
    """Deploy a pilot pod whose jobs of one claim share a container."""
    components = {"components": ["read-only-payload"]}
    return _pilot(lab, name, REUSING, {"K8SPILOT_REUSE": "true"}, components, slots=slots)


def relisting(lab: Lab, name: str, slots: int = 1) -> contextlib.AbstractContextManager[ExecutionPoint]:
    """Deploy a pilot pod that makes the kubelet look at once where jobs follow each other within a second."""
    return _pilot(lab, name, RELISTING, overlay={"components": ["relist"]}, slots=slots)


@contextlib.contextmanager
def _pilot(
    lab: Lab,
    name: str,
    contestant: str,
    environment: Mapping[str, str] | None = None,
    overlay: Mapping[str, Any] | None = None,
    *,
    slots: int,
) -> Iterator[ExecutionPoint]:
    try:
        pilot.deploy(lab, name, environment, overlay, slots=slots)
        wait_in_pool(lab, name)
        yield ExecutionPoint(lab, contestant, name, PILOT_NAMESPACE, "pilot")
    finally:
        pilot.delete(lab, name)


def _resources(slots: int) -> dict[str, Any]:
    """Return a part of an overlay: the resources of all payload containers together."""
    most = {"memory": f"{slots * _EACH_MEMORY_MB}Mi", "ephemeral-storage": f"{slots * _EACH_DISK_MB}Mi"}
    value = {"limits": {**most, "cpu": str(slots)}, "requests": {**most, "cpu": f"{slots * _EACH_REQUEST_MILLI_CPUS}m"}}
    change = {"op": "replace", "path": "/spec/initContainers/1/resources", "value": value}
    return {"patches": [pilot.change(change)]}


@contextlib.contextmanager
def docker_universe(lab: Lab, name: str, slots: int = 1) -> Iterator[ExecutionPoint]:
    """Deploy HTCondor on a real dockerd, with a partitionable slot for `slots` jobs."""
    try:
        docker_ep.deploy(lab, name, _cpus(slots))
        commands = {**docker_ep.WANTED, **_whole(slots)}
        yield ExecutionPoint(lab, DOCKER, name, POOL_NAMESPACE, "condor", commands)
    finally:
        docker_ep.delete(lab, name)


@contextlib.contextmanager
def apptainer(lab: Lab, name: str, slots: int = 1) -> Iterator[ExecutionPoint]:
    """Deploy HTCondor with apptainer in one fully privileged container, with a partitionable slot for `slots` jobs."""
    try:
        apptainer_ep.deploy(lab, name, _cpus(slots))
        commands = {**apptainer_ep.WANTED, **_whole(slots)}
        yield ExecutionPoint(lab, APPTAINER, name, POOL_NAMESPACE, "condor", commands, takes_digests=False)
    finally:
        apptainer_ep.delete(lab, name)


def _cpus(slots: int) -> int:
    return _WHOLE_CPUS if slots == 1 else slots


def _whole(slots: int) -> dict[str, str]:
    """Return submit commands that request the whole slot where one job at a time is to run."""
    return {"request_cpus": str(_WHOLE_CPUS)} if slots == 1 else {}
