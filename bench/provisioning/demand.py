"""Jobs, and outages of the cluster while they are there."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Resources that a job requests, and that a slot has."""

    cpus: int
    memory: int
    """MiB."""


@dataclass(slots=True, eq=False)
class Job:
    """A job and its life, in seconds since the beginning of the simulation."""

    number: int
    user: str
    size: Size
    submitted: float
    seconds: float
    """Time for which it runs."""
    began: float | None = None
    ended: float | None = None
    removal: float | None = None
    """Time at which its user removes it, unless it has ended; None if the user does not."""
    removed: float | None = None
    """Time at which it was removed."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended or was removed."""
        return self.ended is not None or self.removed is not None


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which pods do not start."""

    begin: float
    end: float
    cpus: int = 0
    """CPUs of the pods whose image cannot be pulled; 0 if the cluster is full, so that no pod gets a node."""

    def holds(self, now: float) -> bool:
        """Return whether the outage lasts at that time."""
        return self.begin <= now < self.end


@dataclass(frozen=True, slots=True)
class Curve:
    """A drawn demand."""

    name: str
    words: str
    """Description for people."""
    jobs: Sequence[Job]
    outages: Sequence[Outage] = ()
