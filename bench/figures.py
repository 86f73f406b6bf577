"""Figures: one line each on the terminal, all of them in build/bench.json."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Goal:
    """At most this much."""

    most: float


@dataclass(frozen=True)
class Figure:
    """One measured value."""

    name: str
    value: float
    unit: str
    goal: float | None = None


@dataclass
class Figures:
    """What a run has measured so far."""

    found: list[Figure] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, goal: Goal | None = None) -> None:
        """Keep a figure and print its line."""
        figure = Figure(name, round(value, 4), unit, goal.most if goal else None)
        self.found.append(figure)
        verdict = ""
        if goal is not None:
            verdict = f"   goal <= {goal.most:g}" + ("" if value <= goal.most else "   MISSED")
        print(f"{name:<62} {value:>9.3f} {unit}{verdict}", flush=True)  # noqa: T201

    def write(self, path: Path) -> None:
        """Write all of them as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(figure) for figure in self.found], indent=2) + "\n")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
