"""A picture of jobs and pilots over time, with one panel or several."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from lab.pilot_samples import Sample

_COLOURS = {"busy": "#1f6feb", "without a job": "#f0b429", "starting": "#8a8f98", "jobs": "#b42318"}
_SECONDS = {"h": 3600, "min": 60, "s": 1}

mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "k8spilot"


def draw(target: Path, title: str, samples: Mapping[str, Sequence[Sample]], unit: str = "h") -> None:
    """Draw pilots as areas that are stacked, and the jobs that run or wait as a line; a panel for each entry.

    `unit` is that of the time axis: `h`, `min` or `s`.
    """
    picture = Figure(figsize=(8, 2.6 * len(samples) + 0.5), layout="constrained")
    picture.suptitle(title, x=0.01, ha="left", fontsize=10)
    panels = picture.subplots(len(samples), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, points) in zip(panels, samples.items(), strict=True):
        times = [one.time / _SECONDS[unit] for one in points]
        axes.stackplot(
            times,
            [one.busy for one in points],
            [one.free for one in points],
            [one.coming for one in points],
            labels=["pilots with a job", "pilots without a job", "pods that are not in the pool yet"],
            colors=[_COLOURS["busy"], _COLOURS["without a job"], _COLOURS["starting"]],
            linewidth=0,
        )
        jobs = [one.running + one.idle for one in points]
        axes.plot(times, jobs, color=_COLOURS["jobs"], linewidth=0.8, label="jobs that run or wait")
        axes.set_title(name, loc="left", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=8, frameon=False, loc="upper left")
    panels[-1].set_xlabel(unit)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(target, format="svg", metadata={"Date": None})
