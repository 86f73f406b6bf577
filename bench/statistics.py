"""The order in which contestants are measured, and the statistics of many noisy measurements. Pure."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

Measurement = Callable[[], float | Sequence[float]]
"""Function that makes one repetition, and returns its value or values."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some values."""

    median: float
    low: float
    """A quarter of the values are below it."""
    high: float
    """A quarter of the values are above it."""
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Calculate the spread of at least one value."""
        if not values:
            raise ValueError("there is no middle of no values")
        return cls(median(values), percentile(values, 25), percentile(values, 75), len(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def tail(values: Sequence[float]) -> tuple[str, float]:
    """Return a name and a value of the upper tail: the 99th percentile, or the worst of fewer than a hundred values."""
    if len(values) < 100:
        return f"worst of {len(values)}", max(values)
    return "99th percentile", percentile(values, 99)


def gaps(moments: Sequence[float]) -> list[float]:
    """Return the times between one moment and the next, in the order of time."""
    ordered = sorted(moments)
    return [after - before for before, after in itertools.pairwise(ordered)]


@dataclass(frozen=True)
class Line:
    """A line: value = base + slope * size, fitted by least squares."""

    base: float
    slope: float
    error: float
    """Largest distance of a measured value from the line, relative to that value."""

    def at(self, size: float) -> float:
        """Return the value on the line."""
        return self.base + self.slope * size


def line(sizes: Sequence[float], values: Sequence[float]) -> Line:
    """Fit a line. Each error counts relative to its value: otherwise the largest value alone would decide.

    Raises:
        ValueError: there are fewer than two sizes.
    """
    if len(set(sizes)) < 2:
        raise ValueError("a line needs two sizes")
    weights = [1 / max(abs(value), 1e-9) for value in values]
    slope, base = np.polyfit(np.asarray(sizes, float), np.asarray(values, float), 1, w=np.asarray(weights))
    found = Line(float(base), float(slope), 0.0)
    errors = [abs(found.at(size) - value) / max(abs(value), 1e-9) for size, value in zip(sizes, values, strict=True)]
    return Line(found.base, found.slope, max(errors))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the power of the size with which a value grows: 0 constant, 1 proportional. All must be above 0."""
    slope, _ = np.polyfit(np.log(np.asarray(sizes, float)), np.log(np.asarray(values, float)), 1)
    return float(slope)


def busiest(moments: Sequence[float], seconds: float = 1.0) -> int:
    """Return the most moments that fall into any window of `seconds`."""
    ordered = sorted(moments)
    most = first = 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


# --- contestants in turn: what the machine does beside hits all of them alike ---


def in_turn[Name: str](
    contestants: Mapping[Name, Measurement],
    rounds: int,
    lose: Callable[[Name, Exception], None] | None = None,
) -> dict[Name, list[float]]:
    """Measure each contestant once a round, in changing order; return all values of each.

    One that fails is dropped with its values, if `lose` takes its error and does not raise; the others go on.
    """
    found: dict[Name, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in turned(contestants, number):
            if name not in found:
                continue
            try:
                measured = contestants[name]()
            except Exception as error:
                if lose is None:
                    raise
                lose(name, error)
                del found[name]
            else:
                found[name] += [measured] if isinstance(measured, int | float) else measured
    return found


def turned[Name: str](names: Iterable[Name], number: int) -> list[Name]:
    """Return the names in another order for each round: the first one changes, and every second round is reversed."""
    names = list(names)
    if not names:
        return []
    first = number // 2 % len(names)
    order = list(itertools.islice(itertools.cycle(names), first, first + len(names)))
    return order if number % 2 == 0 else order[::-1]
