"""Samples of the jobs and the pilots of a factory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Jobs and pilots at one moment."""

    time: float
    """Seconds since the beginning."""
    idle: int
    """Jobs that wait."""
    running: int
    coming: int
    """Pods that are not in the pool yet."""
    free: int
    """Pilots in the pool without a job."""
    busy: int
