"""The steps of a job and their times, from the starter's log and the job's own output. Pure."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Final

_LINE = re.compile(r"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d\.\d+) \(pid:(\d+)\) (?:\(D_[^)]*\) )?(.*)$", re.MULTILINE)
_JOB = re.compile(r"Starting a \w+ universe job with ID: (\d+)\.(\d+)")

_MARKS: Final[Sequence[tuple[str, str]]] = (
    ("up", r"\*\* condor_starter .* STARTING UP"),
    ("input", r"File transfer completed"),
    ("starting", r"Starting a \w+ universe job"),
    ("pull", r"Run+ing: \S+ pull"),
    ("create", r"Attempting to run: \S+ create"),
    ("created", r"Process exited, pid=\d+, status="),
    ("start", r"Run+ing: \S+ start -a"),
    ("ended", r"Process exited, pid=\d+, status="),
    ("reaped", r"Returning from Starter::JobReaper"),
    ("output", r"File transfer completed"),
    ("gone", r"EXITING WITH STATUS"),
)
"""Marks: names, and patterns of the starter's log (condor_starter.V6.1), in the order in which they come."""

STEPS: Final[Sequence[tuple[str, str, str]]] = (
    ("starter begins, input files", "up", "starting"),
    ("docker images, inspect", "starting", "pull"),
    ("docker pull: the bind begins", "pull", "create"),
    ("docker create: the bind is settled", "create", "created"),
    ("docker tag, inspect", "created", "start"),
    ("docker start: to the first instruction", "start", "first"),
    ("the job", "first", "last"),
    ("its exit is told to the starter", "last", "ended"),
    ("docker inspect", "ended", "reaped"),
    ("output files", "reaped", "output"),
    ("docker inspect, rm; starter ends", "output", "gone"),
    ("shadow and startd: the next starter", "gone", "next"),
)
"""Steps: name, and the marks at which each begins and ends."""


@dataclass(frozen=True)
class Step:
    """One step of a typical job."""

    name: str
    begin: float
    """Milliseconds from the starter's begin: the sum of the steps before it."""
    end: float
    lasted: tuple[float, ...]
    """Milliseconds of the step in each job."""


def moment(stamp: str) -> float:
    """Return the seconds since the epoch of a time in HTCondor's logs; the pods' clocks are in UTC."""
    return datetime.strptime(stamp, "%m/%d/%y %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()


def marks(log: str, cluster: int) -> dict[int, dict[str, float]]:
    """Return the times of the marks of a cluster's jobs: job number -> mark -> seconds since the epoch."""
    lives: dict[str, list[list[tuple[float, str]]]] = {}
    for stamp, pid, words in _LINE.findall(log):
        if re.match(_MARKS[0][1], words):
            lives.setdefault(pid, []).append([])
        if pid in lives:
            lives[pid][-1].append((moment(stamp), words))
    found = {}
    for life in (one for several in lives.values() for one in several):
        job = next((match for _, words in life if (match := _JOB.search(words))), None)
        if job is not None and int(job[1]) == cluster:
            found[int(job[2])] = _marked(life)
    return found


def _marked(life: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the times of the marks of one job. Each mark is searched after the one before it."""
    seen: dict[str, float] = {}
    at = 0
    for name, pattern in _MARKS:
        for number in range(at, len(life)):
            if re.search(pattern, life[number][1]):
                seen[name], at = life[number][0], number + 1
                break
    return seen


def steps(claims: Sequence[Mapping[int, Mapping[str, float]]]) -> list[Step]:
    """Return the steps one after another, with the medians of the jobs that have both marks of a step.

    `claims` are the results of `marks`. The next job of a claim is the one whose starter begins next in it.
    """
    jobs: list[dict[str, float]] = []
    for seen in claims:
        claim = sorted((dict(one) for one in seen.values() if "up" in one), key=lambda one: one["up"])
        for job, following in itertools.pairwise(claim):
            job["next"] = following["up"]
        jobs += claim
    found: list[Step] = []
    at = 0.0
    for name, begins, ends in STEPS:
        lasted = tuple(1000 * (job[ends] - job[begins]) for job in jobs if begins in job and ends in job)
        if lasted:
            middle = max(median(lasted), 0)
            found.append(Step(name, at, at + middle, lasted))
            at += middle
    return found
