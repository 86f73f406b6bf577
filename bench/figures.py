"""Figures: each is one line on the terminal; all are written to build/bench.json."""

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.goals import Goal
from bench.statistics import Spread


@dataclass(frozen=True)
class Figure:
    """One measured value: the median of its repetitions."""

    part: str
    """The part of the benchmark, as `--only` names it."""
    name: str
    value: float
    unit: str
    low: float
    high: float
    """Upper quartile of the repetitions; `low` is the lower one."""
    count: int
    """Number of repetitions."""
    ratio: float | None = None
    """Ratio of k8spilot's value to another contestant's. This figure is one of the two."""
    ratio_of: str = ""
    """Name of k8spilot's figure."""
    ratio_to: str = ""
    """Name of the other contestant's figure."""
    goal: str = ""
    """The goal in words, as in bench/goals.py."""
    bound: str = ""
    """Limit of the goal."""
    reached: bool | None = None
    samples: tuple[float, ...] = ()

    def line(self) -> str:
        """Return the line that is printed: name, value, spread, ratio, goal."""
        text = f"{self.name:<58} {short(self.value):>9} {self.unit:<10} "
        text += f"{f'{short(self.low)}..{short(self.high)}' if self.count > 1 else '':<18}"
        if self.ratio is not None:
            both = f"this / {self.ratio_to}" if self.ratio_of == self.name else "k8spilot / this"
            text += f" ratio {short(self.ratio)} ({both})"
        if self.goal:
            text += f"   [goal {self.bound}: {'reached' if self.reached else 'MISSED'}]"
        return text.rstrip()


@dataclass
class Figures:
    """Figures that a run has measured so far."""

    found: list[Figure] = field(default_factory=list)
    part: str = ""
    """The part of the benchmark that runs now."""
    measured: int = 0
    """Number of figures that were measured in this run."""

    def add(
        self,
        name: str,
        samples: Sequence[float] | float,
        unit: str,
        *,
        ours: Figure | None = None,
        floor: Figure | None = None,
        goal: Goal | None = None,
    ) -> Figure:
        """Keep a figure and print its line.

        With `ours`, this is another contestant's figure, and k8spilot's figure `ours` is compared with it. With
        `floor`, this is k8spilot's figure, and it is compared with the floor.
        """
        values = [float(samples)] if isinstance(samples, int | float) else list(samples)
        spread = Spread.of(values)
        ratio, ratio_of, ratio_to = None, "", ""
        if ours is not None and spread.median:
            ratio, ratio_of, ratio_to = ours.value / spread.median, ours.name, name
        elif floor is not None and floor.value:
            ratio, ratio_of, ratio_to = spread.median / floor.value, name, floor.name
        if goal is not None and goal.of_ratio and ratio is None:
            goal = None  # not measured, which differs from missed
        figure = Figure(
            part=self.part,
            name=name,
            value=round(spread.median, 6),
            unit=unit,
            low=round(spread.low, 6),
            high=round(spread.high, 6),
            count=spread.count,
            ratio=None if ratio is None else round(ratio, 4),
            ratio_of=ratio_of,
            ratio_to=ratio_to,
            goal=goal.name if goal is not None else "",
            bound=goal.bound if goal is not None else "",
            reached=goal.reached(spread.median, ratio) if goal is not None else None,
            samples=tuple(round(value, 6) for value in values),
        )
        self.measured += 1
        self.found.append(figure)
        say(figure.line())
        return figure

    def keep(self, earlier: Path, *, but: Sequence[str]) -> None:
        """Take over the figures of an earlier run, except those of the parts `but`, which are measured again."""
        known = {one.name for one in fields(Figure)}
        if earlier.exists():
            for entry in json.loads(earlier.read_text())["figures"]:
                if entry["part"] not in but:
                    kept = {name: value for name, value in entry.items() if name in known}
                    self.found.append(Figure(**{**kept, "samples": tuple(entry["samples"])}))

    def of(self, part: str) -> list[Figure]:
        """Return the figures of one part."""
        return [figure for figure in self.found if figure.part == part]

    def write(self, path: Path, facts: dict[str, Any]) -> None:
        """Write all figures as JSON, with `facts` about the run. A run without figures writes nothing."""
        if not self.measured:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "kernel": platform.release(),
            **facts,
            "figures": [asdict(figure) for figure in self.found],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")


def short(value: float) -> str:
    """Return a number with three or four significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"


def say(words: str) -> None:
    """Print a line at once."""
    print(words, flush=True)  # noqa: T201
