"""Pods of pilots."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from bench.provisioning.demand import Job, Size

NOTHING = Size(0, 0)
STATISTICS_SECONDS = 1200.0
"""Window of the startd's statistics of jobs."""


class Phase(Enum):
    """State of a pod."""

    WAITING = "waiting"
    """Pod without a node."""
    PULLING = "pulling"
    """Pod on a node whose container has not started."""
    STARTING = "starting"
    """Pod whose container runs and is not in the pool yet."""
    IN_POOL = "in the pool"
    ENDED = "ended"
    """Pod that has ended or was deleted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Common properties of all pods of a template."""

    name: str
    size: Size
    """Resources of its one slot, and of the pod."""
    jobs: int = 1
    """Most jobs at a time; more than 1 if the slot is partitionable."""


@dataclass(slots=True, eq=False)
class Pod:
    """A pod with a pilot, and its life, in seconds since the beginning of the simulation."""

    number: int
    shape: Shape
    created: float
    phase: Phase = Phase.WAITING
    trouble: str = ""
    """Reason why it does not start; empty if there is none."""
    node: int = -1
    scheduled: float | None = None
    started: float = 0.0
    joined: float = 0.0
    ended: float | None = None
    free: Size = NOTHING
    """Resources that no claim has."""
    claims: int = 0
    is_retiring: bool = False
    """Whether its lifetime is over, so that it takes no more jobs."""
    changed: float = 0.0
    """Time of the last change between claims and no claim."""
    jobs: int = 0
    """Jobs that began in it."""
    busy: float = 0.0
    """Seconds with at least one claim."""
    worked: float = 0.0
    """CPU seconds of the jobs that ended in it."""
    running: dict[Job, float] = field(default_factory=dict)
    """Jobs in it, with the times of their starts."""
    ends: deque[tuple[float, float]] = field(default_factory=deque)
    """Times of the latest ends of jobs, each with the job's duration in seconds."""

    def accepts(self, size: Size) -> bool:
        """Return whether a job of that size may match the pod. A static slot takes jobs of its own size only."""
        if self.is_retiring:
            return False
        if self.shape.jobs == 1:
            return not self.claims and size == self.shape.size
        return self.claims < self.shape.jobs and size.cpus <= self.free.cpus and size.memory <= self.free.memory

    def recent(self, now: float) -> tuple[int, float]:
        """Return how many jobs ended in it lately, and for how many seconds jobs ran meanwhile, as supply.py does."""
        while self.ends and self.ends[0][0] < now - STATISTICS_SECONDS:
            self.ends.popleft()
        ran = sum(seconds for _, seconds in self.ends) + sum(now - begin for begin in self.running.values())
        return len(self.ends), min(ran, min(now - self.joined, STATISTICS_SECONDS) * self.shape.jobs)
