"""The goals for k8spilot, in one table. Each run is judged by it, including incomplete ones."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Protocol

DOCKER: Final = "docker"
"""Short name of the contestant for `--without`."""


@dataclass(frozen=True)
class Goal:
    """The limit of a figure's value or ratio. A ratio is always k8spilot's value divided by the other's."""

    part: str
    """The part of the benchmark that measures it."""
    name: str
    """The name, in words. It is unique."""
    at_most: float | None = None
    at_least: float | None = None
    of_ratio: bool = False
    needs: str = ""
    """A contestant that the measurement needs; empty: none."""
    void: str = ""
    """A reason why the value does not count, even if it is good."""

    def reached(self, value: float, ratio: float | None) -> bool:
        """Return whether the goal is reached."""
        seen = ratio if self.of_ratio else value
        if seen is None or self.void:
            return False
        return (self.at_most is None or seen <= self.at_most) and (self.at_least is None or seen >= self.at_least)

    def voided(self, why: str) -> "Goal":
        """Return the same goal, void if there is a reason `why` its value does not count."""
        return replace(self, void=why)

    @property
    def bound(self) -> str:
        """The limit."""
        text = f"<= {self.at_most:.3g}" if self.at_most is not None else f">= {self.at_least:.3g}"
        return f"{'ratio ' if self.of_ratio else ''}{text}{f', but {self.void}' if self.void else ''}"


BIND: Final = Goal("bind", "bind, to the floor", at_most=1.2, of_ratio=True)
TOLD: Final = Goal("bind", "payload's exit -> told, median, ms", at_most=50)
TOLD_TAIL: Final = Goal("bind", "payload's exit -> told, 99th percentile, ms", at_most=150)
NEXT: Final = Goal("turnaround", "0 s jobs back to back, s", at_most=1.1)
NEXT_DOCKER: Final = Goal(
    "turnaround", "0 s jobs back to back, to docker universe on dockerd", at_most=1, of_ratio=True, needs=DOCKER
)
NEXT_PODS: Final = Goal("turnaround", "0 s jobs back to back, to a pod per job", at_most=1 / 3, of_ratio=True)
NEXT_REFERENCE: Final = Goal(
    "reference", "0 s jobs back to back, to the reference method", at_most=1 / 10, of_ratio=True
)
STDOUT: Final = Goal(
    "streams", "stdout's speed, to docker universe on dockerd", at_least=1, of_ratio=True, needs=DOCKER
)
SLOWDOWN: Final[Mapping[str, Goal]] = {
    load: Goal("slowdown", f"{load}-bound payload's fastest turns, times a plain container's", at_most=1.01)
    for load in ("processor", "memory")
}
REQUESTS: Final = Goal("cost", "API requests a job, by the API server's count", at_most=3)
MEMORY_IDLE: Final = Goal("cost", "k8spilot alone (engine and supervisor), memory idle, MiB", at_most=60)
MEMORY_BUSY: Final = Goal("cost", "k8spilot alone (engine and supervisor), memory busy, MiB", at_most=60)
PROCESSOR_IDLE: Final = Goal("cost", "k8spilot alone (engine and supervisor), idle, % of a core", at_most=0.1)
SLOTS_RATE: Final = Goal("slots", "0 s jobs on eight slots, jobs a second", at_least=4)
SLOTS_START: Final = Goal("slots", "isolated job: first instruction later than with one slot, s", at_most=0.3)
SLOTS_MEMORY: Final = Goal("slots", "k8spilot alone with eight slots, memory, MiB", at_most=70)
SLOTS_REQUESTS: Final = Goal("slots", "API requests a job with eight slots, by the API server's count", at_most=3)
REUSE_NEXT: Final = Goal("reuse", "0 s jobs of a claim in one container, s", at_most=0.35)
REUSE_APPTAINER: Final = Goal(
    "reuse", "0 s jobs of a claim in one container, to nested apptainer", at_most=1, of_ratio=True, needs="apptainer"
)
REUSE_PODS: Final = Goal(
    "reuse", "0 s jobs of a claim in one container, to a pod per job", at_most=1 / 6, of_ratio=True
)
REUSE_START: Final = Goal("reuse", "starter begins -> first instruction, in one container, s", at_most=0.25)
REUSE_PROCESSOR_DOCKER: Final = Goal(
    "reuse",
    "processor for a job in one container, to docker universe on dockerd",
    at_most=0.5,
    of_ratio=True,
    needs=DOCKER,
)
REUSE_PROCESSOR_APPTAINER: Final = Goal(
    "reuse", "processor for a job in one container, to nested apptainer", at_most=0.5, of_ratio=True, needs="apptainer"
)
RELIST_NEXT: Final = Goal("relist", "0 s jobs back to back, with relist, s", at_most=0.9)
RELIST_DOCKER: Final = Goal(
    "relist",
    "0 s jobs back to back, with relist, to docker universe on dockerd",
    at_most=1,
    of_ratio=True,
    needs=DOCKER,
)
RELIST_TAIL: Final = Goal("relist", "0 s jobs back to back, with relist: longest of 200, times the median", at_most=2)
CHANGING_DOCKER: Final = Goal(
    "changing",
    "0 s jobs of two images in turn, with relist, to docker universe on dockerd",
    at_most=0.9,
    of_ratio=True,
    needs=DOCKER,
)
CROWD: Final = Goal("scale", "10,000 pilots idle: requests a second on the API server in all", at_most=50)
RETURN: Final[Mapping[int, Goal]] = {
    size: Goal("scale", f"{size:,} pilots return over (API server's restart, 5 to 95 of 100 lists), s", at_least=30)
    for size in (1000, 10_000)
}

GOALS: Final = (
    BIND,
    TOLD,
    TOLD_TAIL,
    NEXT,
    NEXT_DOCKER,
    NEXT_PODS,
    NEXT_REFERENCE,
    STDOUT,
    *SLOWDOWN.values(),
    REQUESTS,
    MEMORY_IDLE,
    MEMORY_BUSY,
    PROCESSOR_IDLE,
    SLOTS_RATE,
    SLOTS_START,
    SLOTS_MEMORY,
    SLOTS_REQUESTS,
    REUSE_NEXT,
    REUSE_APPTAINER,
    REUSE_PODS,
    REUSE_START,
    REUSE_PROCESSOR_DOCKER,
    REUSE_PROCESSOR_APPTAINER,
    RELIST_NEXT,
    RELIST_DOCKER,
    RELIST_TAIL,
    CHANGING_DOCKER,
    CROWD,
    *RETURN.values(),
)


class State(Enum):
    """The state of a goal after a run."""

    REACHED = "reached"
    MISSED = "MISSED"
    NOT_MEASURED = "NOT MEASURED"
    LEFT_OUT = "left out"
    """This run was not asked to measure it."""


class Judged(Protocol):
    """The parts of a figure that are needed to judge it."""

    @property
    def goal(self) -> str:
        """Name of the goal."""

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None if that is unknown."""


def judge(figures: Iterable[Judged], parts: Collection[str], without: Collection[str]) -> dict[Goal, State]:
    """Return the state of each goal after a run of `parts`, without some contestants (their short names)."""
    seen: dict[str, list[bool]] = {}
    for figure in figures:
        if figure.reached is not None:
            seen.setdefault(figure.goal, []).append(figure.reached)
    found = {}
    for goal in GOALS:
        if goal.name in seen:
            found[goal] = State.REACHED if all(seen[goal.name]) else State.MISSED
        else:
            wanted = goal.part in parts and goal.needs not in without
            found[goal] = State.NOT_MEASURED if wanted else State.LEFT_OUT
    return found
