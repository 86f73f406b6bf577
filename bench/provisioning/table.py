"""The table of all figures, for the terminal and as JSON."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.figures import short
from bench.provisioning.contestants import CONTESTANTS
from bench.provisioning.measures import Measures

Found = Mapping[str, Mapping[str, Measures]]
"""Measures by curve and contestant."""

COLUMNS = {
    "wasted": "h wasted",
    "hours": "h in all",
    "wasted_cpus": "CPU h wasted",
    "wait_mean": "wait, s",
    "wait_median": "median",
    "wait_95": "95 %",
    "pods": "pods",
    "unused": "unused",
    "unplaced": "of these without a node",
    "makespan": "makespan, h",
}


def lines(found: Found, words: Mapping[str, str]) -> Iterator[str]:
    """Yield the table in Markdown, with a heading for each curve. `words` describe the curves."""
    for curve, measured in found.items():
        yield f"## {curve}: {words[curve]}"
        yield ""
        yield "| | " + " | ".join(COLUMNS.values()) + " |"
        yield "|---" * (len(COLUMNS) + 1) + "|"
        for name, one in measured.items():
            cells = [short(getattr(one, column)) for column in COLUMNS]
            yield f"| {name} | " + " | ".join(cells) + " |"
        yield ""
    for name in dict.fromkeys(name for measured in found.values() for name in measured):
        yield f"- {name}: {CONTESTANTS[name].words}."


def write(target: Path, found: Found, words: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Write all figures as JSON, with more facts of the run."""
    target.parent.mkdir(parents=True, exist_ok=True)
    curves = {
        curve: {"words": words[curve], "contestants": {name: asdict(one) for name, one in measured.items()}}
        for curve, measured in found.items()
    }
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    target.write_text(json.dumps({"written": written, **facts, "curves": curves}, indent=1) + "\n")
