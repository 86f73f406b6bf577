"""Print all figures of some runs as Markdown tables, for the page of figures: `python -m bench.table RUN.json ...`."""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import say, short
from lab.errors import LabError

Entry = Mapping[str, Any]
"""A figure as bench/figures.py writes it."""


@dataclass(frozen=True)
class Written:
    """The figures file of a run."""

    written: str
    """Time of writing: ISO 8601, UTC."""
    seconds: float
    figures: Mapping[tuple[str, str], Entry]
    """Figures by part and name."""


def read(path: Path) -> Written:
    """Read a figures file. Raises LabError: the file is something else."""
    try:
        found = json.loads(path.read_text())
        figures = {(one["part"], one["name"]): one for one in found["figures"]}
        return Written(str(found["written"]), float(found.get("seconds", 0)), figures)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise LabError(f"{path} is not what `make bench` writes: {error}") from error


def table(runs: Sequence[Written]) -> str:
    """Return the figures of all runs, in the order of the first one that has them; a heading for each part."""
    known = list(dict.fromkeys(itertools.chain.from_iterable(run.figures for run in runs)))
    lines = [
        "# Figures",
        "",
        "Medians; in brackets quartiles, and of how many values. What they mean: docs/explanation/performance.md.",
    ]
    for number, run in enumerate(runs, 1):
        lines += [
            "",
            f"Run {number}: written {run.written}, {len(run.figures)} figures, {run.seconds / 60:.0f} minutes.",
        ]
    for part in dict.fromkeys(part for part, _ in known):
        columns = [f"run {number}" for number in range(1, len(runs) + 1)]
        lines += ["", f"## {part}", ""]
        lines += [_row(["figure", "unit", *columns, "k8spilot to it, or it to the floor", "goal"])]
        lines.append("|---" * (len(runs) + 4) + "|")
        for key in (one for one in known if one[0] == part):
            found = [run.figures.get(key) for run in runs]
            unit = next(one["unit"] for one in found if one is not None)
            lines.append(_row([key[1], unit, *map(_value, found), _each(found, _ratio), _each(found, _goal)]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _each(found: Sequence[Entry | None], words: Callable[[Entry], str]) -> str:
    """Return the words for each run's figure; empty if there are none for any run."""
    texts = [words(one) if one is not None else "" for one in found]
    return "; ".join(one or "-" for one in texts) if any(texts) else ""


def _value(figure: Entry | None) -> str:
    """Return the median, and in brackets the quartiles and the number of values."""
    if figure is None:
        return "-"
    spread = f" ({short(figure['low'])}..{short(figure['high'])}, {figure['count']})" if figure["count"] > 1 else ""
    return f"{short(figure['value'])}{spread}"


def _ratio(figure: Entry) -> str:
    return short(figure["ratio"]) if figure["ratio"] is not None else ""


def _goal(figure: Entry) -> str:
    return f"{figure['bound']}: {'reached' if figure['reached'] else 'missed'}" if figure["goal"] else ""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.table", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    try:
        say(table([read(path) for path in parser.parse_args().runs]).rstrip("\n"))
    except LabError as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
