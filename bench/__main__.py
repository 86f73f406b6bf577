"""Run the benchmark: `python -m bench`. It needs the lab, and the machine for itself."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.execution_points import APPTAINER, DOCKER
from bench.failures import contained, into
from bench.figures import Figures, say, short
from bench.goals import State, judge
from bench.parts import bind, changing, cost, relist, reuse, scale, slots, slowdown, transfer, turnaround
from bench.run import Run
from lab.api import Lab
from lab.errors import LabError

FOLDER = Path("build")


@dataclass(frozen=True)
class Part:
    """One part of the benchmark."""

    measure: Callable[[Run], None]
    minutes: float
    """Minutes that it took in a full run on two cores."""


PARTS: dict[str, Part] = {
    "bind": Part(bind.measure, 5),
    "turnaround": Part(turnaround.measure, 2.5),
    "reference": Part(turnaround.reference, 3.5),
    "throughput": Part(turnaround.throughput, 6),
    "waterfall": Part(turnaround.steps, 1),
    "streams": Part(transfer.streams, 1),
    "staging": Part(transfer.staging, 2.5),
    "slowdown": Part(slowdown.measure, 4.5),
    "cost": Part(cost.measure, 3),
    "slots": Part(slots.measure, 6),
    "reuse": Part(reuse.measure, 5),
    "relist": Part(relist.measure, 9),
    "changing": Part(changing.measure, 5),
    "scale": Part(scale.measure, 21),
}
QUICK = ("bind", "turnaround")
QUICK_MINUTES = 2.9
"""Minutes of both parts together, on the same machine."""
SHORT = {"apptainer": APPTAINER, "docker": DOCKER}


@dataclass(frozen=True)
class Chosen:
    """Options of the command line."""

    parts: Sequence[str]
    without: Collection[str]
    """Contestants, by their short names."""
    quick: bool
    add: bool
    """Whether the last run's figures of other parts are kept."""
    before: str
    """A commit whose pilot is measured as well; empty if none is."""

    @property
    def target(self) -> Path:
        """The file for the figures; pictures go into the folder of that name. A partial run has a file of its own."""
        whole = self.add or set(self.parts) == set(PARTS)
        return FOLDER / ("bench-quick.json" if self.quick else "bench.json" if whole else "bench-only.json")

    @property
    def expected(self) -> str:
        """The expected duration, in words."""
        if not self.quick:
            return f"about {sum(PARTS[part].minutes for part in self.parts):.0f} minutes, once the lab is up"
        if set(self.parts) == set(QUICK):
            return f"about {60 * QUICK_MINUTES:.0f} seconds, once the lab is up"
        return "some minutes, once the lab is up"


def chosen(words: Sequence[str] | None = None) -> Chosen:
    """Read the command line; an error of it ends the program."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under three minutes: the parts that change most")
    parser.add_argument("--only", help=f"parts, with commas: {','.join(PARTS)}")
    parser.add_argument("--without", default="", help=f"contestants to leave out, with commas: {','.join(SHORT)}")
    parser.add_argument("--add", action="store_true", help="keep the other parts' figures of earlier runs")
    parser.add_argument("--before", default="", metavar="COMMIT", help="also measure the pilot of that commit")
    arguments = parser.parse_args(words)
    parts = _names(arguments.only) if arguments.only is not None else list(QUICK if arguments.quick else PARTS)
    without = _names(arguments.without)
    for names, known, kind in ((parts, PARTS, "part"), (without, SHORT, "contestant to leave out")):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"there is no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    if not parts:
        parser.error(f"--only names no part; there are {', '.join(PARTS)}")
    if arguments.quick:
        without = [*without, "apptainer"]
    return Chosen(parts, frozenset(without), arguments.quick, arguments.add, arguments.before)


def _names(words: str) -> list[str]:
    return [name for one in words.split(",") if (name := one.strip())]


def main() -> int:
    """Measure, print figures, write them and the pictures, and print the state of each goal."""
    wanted = chosen()
    figures = Figures()
    if wanted.add:
        figures.keep(wanted.target, but=wanted.parts)
    say(f"--- {', '.join(wanted.parts)}: {wanted.expected}; into {wanted.target}")
    began = time.monotonic()
    lost = ["it was interrupted"]
    try:
        lost = _run(wanted, figures)
    finally:
        seconds = round(time.monotonic() - began)
        figures.write(wanted.target, {"quick": wanted.quick, "seconds": seconds, "lost": lost})
        where = f"in {wanted.target}; pictures in {wanted.target.with_suffix('')}"
        say(f"--- {figures.measured} figures in {seconds} s, {where if figures.measured else 'which are not written'}")
        unknown = _summarize(figures, wanted)
        for words in lost:
            say(f"could not be measured: {words}")
    return 1 if lost or unknown else 0


def _run(wanted: Chosen, figures: Figures) -> list[str]:
    """Measure each part. Return the measurements that failed, with the reasons; a failure does not stop the others."""
    lost: list[str] = []
    with contained(into(lost, "the lab")):
        lab = Lab.up()
        if lab.settings.kubeconfig is not None:
            raise LabError("KUBECONFIG is set: what is measured here is compared on the lab's own node only")
        without = [SHORT[name] for name in wanted.without]
        pictures = wanted.target.with_suffix("")
        run = Run(lab, figures, quick=wanted.quick, pictures=pictures, without=without, before=wanted.before, lost=lost)
        with contextlib.closing(run):
            run.clear_queue()
            for part in wanted.parts:
                _measure(run, part)
    return lost


def _measure(run: Run, part: str) -> None:
    run.figures.part = part
    say(f"--- {part} ({time.strftime('%H:%M:%S')})")
    failed: list[str] = []
    with contained(into(failed, part)):
        PARTS[part].measure(run)
    if failed:
        run.lost += failed
        run.forget()  # the state of the execution points is unknown


def _summarize(figures: Figures, wanted: Chosen) -> bool:
    """Print the state of each goal; return whether one that this run had to measure is unknown."""
    measured = {figure.goal: figure for figure in figures.found if figure.goal}
    states = judge(figures.found, wanted.parts, wanted.without)
    for goal, state in states.items():
        if state is State.LEFT_OUT:
            continue
        words = f"{state.value:<12} {goal.name} ({goal.bound})"
        if (figure := measured.get(goal.name)) is not None:
            value = figure.ratio if goal.of_ratio else figure.value
            words += f": {short(value) if value is not None else 'no ratio'}{_void(figure.bound)}"
        say(words)
    return State.NOT_MEASURED in states.values()


def _void(bound: str) -> str:
    """Return the reason why a value does not count, if its goal names one."""
    return f",{bound.partition(',')[2]}" if "," in bound else ""


if __name__ == "__main__":
    sys.exit(main())
