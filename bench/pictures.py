"""Pictures of the figures of a run: build/bench/*.svg."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from bench.statistics import Spread, line

OURS = "k8spilot"
_COLOURS = {True: "#1f6feb", False: "#8a8f98"}

# Text stays text, so that it can be searched, and the same figures give the same file.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "k8spilot"


def distributions(target: Path, title: str, unit: str, samples: Mapping[str, Sequence[float]]) -> None:
    """Draw the spread of the repetitions of each contestant: a box with the quartiles, and each repetition as a dot."""
    names = [name for name, values in samples.items() if values]
    if not names:
        return
    picture, axes = _new(title, height=1.2 + 0.5 * len(names))
    axes.boxplot([list(samples[name]) for name in names], orientation="horizontal", showfliers=False, widths=0.6)
    for place, name in enumerate(names, 1):
        colour = _COLOURS[name.startswith(OURS)]
        axes.plot(samples[name], [place] * len(samples[name]), "o", markersize=4, alpha=0.5, color=colour)
    axes.set_yticks(range(1, len(names) + 1), names)
    axes.set_xlabel(unit)
    values = [value for name in names for value in samples[name] if value > 0]
    if values and max(values) > 20 * min(values):
        axes.set_xscale("log")
    _save(picture, target)


def bars(target: Path, title: str, unit: str, samples: Mapping[str, Sequence[float]]) -> None:
    """Draw one bar for each contestant: the median, with the quartiles as a line."""
    names = [name for name, values in samples.items() if values]
    if not names:
        return
    picture, axes = _new(title, height=1.2 + 0.4 * len(names))
    for place, name in enumerate(names):
        spread = Spread.of(samples[name])
        axes.barh(place, spread.median, color=_COLOURS[name.startswith(OURS)])
        axes.plot([spread.low, spread.high], [place, place], color="black", linewidth=1.5)
        axes.annotate(f" {spread.median:.3g}", (max(spread.high, spread.median), place), va="center")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.12)
    _save(picture, target)


def curves(
    target: Path, title: str, unit: str, measured: Mapping[str, Sequence[tuple[float, float]]], until: float
) -> None:
    """Draw a value by the number of pilots, with the line that fits it, dashed beyond the measured sizes."""
    picture, axes = _new(title, height=3.6)
    for name, points in measured.items():
        kept = [(size, value) for size, value in points if value > 0]
        if not kept:
            continue
        sizes, values = zip(*kept, strict=True)
        (drawn,) = axes.plot(sizes, values, "o", label=name)
        if len(kept) > 1:
            fitted = line(sizes, values)
            colour = drawn.get_color()
            inside = [size for size in _steps(min(sizes), max(sizes)) if fitted.at(size) > 0]
            beyond = [size for size in _steps(max(sizes), until) if fitted.at(size) > 0]
            axes.plot(inside, [fitted.at(size) for size in inside], color=colour)
            axes.plot(beyond, [fitted.at(size) for size in beyond], "--", color=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("pilots")
    axes.set_ylabel(unit)
    axes.legend()
    _save(picture, target)


def timeline(target: Path, title: str, moments: Mapping[str, Sequence[float]], unit: str = "s") -> None:
    """Draw the number of events in each second: one line for each kind."""
    picture, axes = _new(title, height=3.0)
    for name, seconds in moments.items():
        if seconds:
            end = int(max(seconds)) + 2
            axes.hist(seconds, bins=range(min(0, int(min(seconds))), end), histtype="step", label=name)
    axes.set_xlabel(unit)
    axes.set_ylabel("requests in a second")
    axes.legend()
    _save(picture, target)


def waterfall(target: Path, title: str, steps: Iterable[tuple[str, float, float]]) -> None:
    """Draw the steps of a job: name, begin and end of each in milliseconds."""
    rows = list(steps)
    if not rows:
        return
    picture, axes = _new(title, height=1.0 + 0.32 * len(rows), left=0.4)
    for place, (name, begin, end) in enumerate(rows):
        axes.barh(place, max(end - begin, 2), left=begin, color=_COLOURS[True])
        axes.annotate(f" {end - begin:.0f}", (end, place), va="center", fontsize=8)
        axes.text(-0.01, place, name, transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=8)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.margins(x=0.08)
    _save(picture, target)


def _steps(first: float, last: float) -> list[float]:
    count = 30
    return [first * (last / first) ** (number / count) for number in range(count + 1)]


def _new(title: str, height: float, left: float | None = None) -> tuple[Picture, Axes]:
    picture = Picture(figsize=(8, height), layout=None if left else "constrained")
    axes = picture.add_subplot()
    if left:
        picture.subplots_adjust(left=left, right=0.97, top=1 - 0.4 / height, bottom=0.5 / height)
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return picture, axes


def _save(picture: Picture, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(target, format="svg", metadata={"Date": None})
