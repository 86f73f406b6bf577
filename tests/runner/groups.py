"""Groups of tests: what one worker runs one after another, and what a group needs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest

Need = Literal["nothing", "lab", "node alone"]

LAB_MARKS: Final = ("node", "e2e", "oracle", "attack")
PARTS: Final = {"disruptive": 25.0, "gpu": 12.0, "attack": 8.0, "oracle": 3.0, "e2e": 8.0, "node": 1.5}
"""Parts of the suite by their marks, the first that fits; seconds of a test that was never measured."""
OTHER_PARTS: Final = {"engine": 0.4, "fuzz": 1.0, "unit": 0.05}
"""Parts by the folder, for tests without such a mark."""
QUICK_FOLDERS: Final = ("unit", "engine", "fuzz")


@dataclass(frozen=True)
class Facts:
    """What the scheduler knows of a test; workers write it, since only they collect."""

    part: str
    need: Need
    group: str
    """Tests of a group run on one worker, one after another, since they share fixtures of their module."""


@dataclass
class Group:
    """Tests that go to a worker together."""

    name: str
    need: Need
    indices: list[int] = field(default_factory=list)
    """Positions in the collection."""
    seconds: float = 0.0
    """Expected time."""


def part_of(item: pytest.Item) -> str:
    """The part of the suite that a test belongs to."""
    found = next((part for part in PARTS if item.get_closest_marker(part) is not None), None)
    return found or item.nodeid.split("/")[1]


def facts_of(item: pytest.Item) -> Facts:
    """What the scheduler needs to know of a collected test."""
    part = part_of(item)
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    if item.get_closest_marker("disruptive") is not None:
        need: Need = "node alone"
    elif "lab" in fixtures or any(item.get_closest_marker(mark) is not None for mark in LAB_MARKS):
        need = "lab"
    else:
        need = "nothing"
    own = item.get_closest_marker("xdist_group")
    module = item.nodeid.partition("::")[0]
    level = getattr(item, "callspec", None) and item.callspec.params.get("level")  # type: ignore[attr-defined]
    group = str(own.args[0]) if own is not None else f"{module}[{level}]" if level else module
    return Facts(part, need, f"{group} ({need})")


def write(items: Sequence[pytest.Item], target: Path) -> None:
    """Write the facts of all collected tests, in their order."""
    rows = [[item.nodeid, one.part, one.need, one.group] for item in items for one in (facts_of(item),)]
    target.write_text(json.dumps(rows))


def read(source: Path) -> dict[str, Facts]:
    """Read what `write` wrote, by the test's id."""
    rows = json.loads(source.read_text())
    return {test: Facts(part, need, group) for test, part, need, group in rows}


def form(collection: Sequence[str], facts: Mapping[str, Facts], seconds: Mapping[str, float]) -> list[Group]:
    """Make the groups of a collection, those that are expected to take longest first.

    Args:
        collection: ids of the tests.
        facts: by id.
        seconds: what tests took in an earlier session; others are guessed by their part.
    """
    guesses = {**OTHER_PARTS, **PARTS}
    groups: dict[str, Group] = {}
    for index, test in enumerate(collection):
        one = facts[test]
        group = groups.setdefault(one.group, Group(one.group, one.need))
        group.indices.append(index)
        group.seconds += seconds.get(test, guesses.get(one.part, 1.0))
    return sorted(groups.values(), key=lambda group: -group.seconds)
