"""Jobs that were started again although no fault hit their payload container, their pod or the node. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lab.patience import scaled

_BEFORE_SECONDS: Final = 2.0
"""Tolerance before a fault, since HTCondor's event log has whole seconds."""
_AFTER_SECONDS: Final = scaled(5.0)
"""Time in which the pilot recovers from a fault: a new engine starts, or a new container."""


@dataclass(frozen=True)
class Hit:
    """A fault that was made."""

    fault: str
    pod: str
    """Name of the pod; empty for faults of the whole node."""
    container: int | None
    """Number of the payload container; None if it hit the whole pod."""
    began: float
    ended: float
    """Time of the end, in seconds since 1970, like all times here."""


@dataclass(frozen=True)
class Run:
    """A start of a job."""

    job: str
    pod: str
    container: int | None
    began: float
    ended: float


def unexplained(runs: Iterable[Run], hits: Sequence[Hit]) -> list[str]:
    """Describe those of these unfinished runs that no fault explains."""
    return [
        f"{run.job}: on container {run.container} of {run.pod} from {run.began:.0f} to {run.ended:.0f}"
        for run in runs
        if not any(_explains(hit, run) for hit in hits)
    ]


def _explains(hit: Hit, run: Run) -> bool:
    is_there = hit.pod in ("", run.pod) and hit.container in (None, run.container)
    return is_there and hit.began - _BEFORE_SECONDS <= run.ended and run.began <= hit.ended + _AFTER_SECONDS
