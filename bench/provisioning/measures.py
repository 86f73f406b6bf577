"""Figures of a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median

from bench.provisioning.demand import Job
from bench.provisioning.pods import Pod
from bench.provisioning.world import Result
from bench.statistics import percentile

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Measures:
    """The costs of a provisioner's pilots, and the jobs that they ran."""

    wasted: float
    """Hours for which pods were on a node without a job."""
    hours: float
    """Hours for which pods were on a node."""
    wasted_cpus: float
    """Hours for which a CPU of a pod had no job."""
    cpus: float
    """CPU hours of pods."""
    wait_mean: float
    """Seconds from a job's submission to its start. Jobs that were removed do not count."""
    wait_median: float
    wait_95: float
    pods: float
    """Pods made."""
    unused: float
    """Pods that never had a job."""
    unplaced: float
    """Pods that never had a node: only an entry in Kubernetes' database. They are among the unused ones, too."""
    makespan: float
    """Hours from the first submission to the end of the last job."""
    done: float
    """Jobs that have ended."""
    removed: float
    """Jobs that were removed."""

    @classmethod
    def of(cls, result: Result) -> "Measures":
        """Calculate the figures of a simulation that has ended."""
        done = [job for job in result.jobs if job.ended is not None]
        waits = [job.began - job.submitted for job in done if job.began is not None]
        ends = [job.ended for job in done if job.ended is not None]
        spans = [(pod, _span(pod)) for pod in result.pods]
        cpus = sum(seconds * pod.shape.size.cpus for pod, seconds in spans)
        return cls(
            wasted=sum(seconds - pod.busy for pod, seconds in spans) / HOUR,
            hours=sum(seconds for _, seconds in spans) / HOUR,
            wasted_cpus=(cpus - sum(pod.worked for pod in result.pods)) / HOUR,
            cpus=cpus / HOUR,
            wait_mean=fmean(waits),
            wait_median=median(waits),
            wait_95=percentile(waits, 95),
            pods=len(result.pods),
            unused=sum(not pod.jobs for pod in result.pods),
            unplaced=sum(pod.scheduled is None for pod in result.pods),
            makespan=(max(ends) - _first(result.jobs)) / HOUR,
            done=len(done),
            removed=sum(job.removed is not None for job in result.jobs),
        )


def mean(found: Sequence[Measures]) -> Measures:
    """Return the means of several simulations."""
    return Measures(**{one.name: fmean(getattr(each, one.name) for each in found) for one in fields(Measures)})


def _span(pod: Pod) -> float:
    """Return the seconds for which a pod had a node."""
    if pod.scheduled is None or pod.ended is None:
        return 0.0
    return pod.ended - pod.scheduled


def _first(jobs: Sequence[Job]) -> float:
    return min(job.submitted for job in jobs)
