"""Groups of tests: what one worker runs one after another, and what a group needs."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest

Need = Literal["nothing", "lab", "node alone"]

LAB_MARKS: Final = ("node", "e2e", "oracle", "attack")
PARTS: Final = {"disruptive": 25.0, "gpu": 12.0, "attack": 8.0, "oracle": 3.0, "e2e": 8.0, "node": 1.5}
"""Parts of the suite by their marks, the first that fits; seconds of a test that was never measured."""
ONE_AT_A_TIME: Final = ("gpu",)
"""Parts that are one group: they take what there is little of, such as the node's four GPUs of a kind."""
OTHER_PARTS: Final = {"engine": 0.4, "fuzz": 1.0, "unit": 0.05}
"""Parts by the folder, for tests without such a mark."""
_OF_LIMIT: Final = 0.25
"""A test whose limit is longer than the usual one takes some such part of it."""


@dataclass(frozen=True)
class Facts:
    """Facts about a test for the scheduler; workers write them, since only they collect."""

    part: str
    need: Need
    group: str
    """Tests of a group run on one worker, one after another, since they share fixtures of their module."""
    seconds: float = 1.0
    """A guess of what it takes, where it was never measured."""
    keeps: bool = False
    """Whether its worker keeps something of the lab's until the worker's end: a fixture of the session's."""


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
    """Return the facts about a collected test that the scheduler needs."""
    part = part_of(item)
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    if item.get_closest_marker("disruptive") is not None:
        need: Need = "node alone"
    elif "lab" in fixtures or any(item.get_closest_marker(mark) is not None for mark in LAB_MARKS):
        need = "lab"
    else:
        need = "nothing"
    own = item.get_closest_marker("xdist_group")
    # A test that shares nothing with its module is a group of its own.
    module = item.nodeid if item.get_closest_marker("apart") is not None else item.nodeid.partition("::")[0]
    level = getattr(item, "callspec", None) and item.callspec.params.get("level")  # type: ignore[attr-defined]
    name = f"{module}[{level}]" if level else module
    if own is not None:
        name = str(own.args[0])
    elif part in ONE_AT_A_TIME:
        name = part
    seconds = {**OTHER_PARTS, **PARTS}.get(part, 1.0)
    limit = item.get_closest_marker("timeout")
    if limit is not None and limit.args and part != "attack":
        seconds = max(seconds, _OF_LIMIT * float(limit.args[0]))
    return Facts(part, need, f"{name} ({need})", seconds, _keeps(item))


def _keeps(item: pytest.Item) -> bool:
    """Whether a fixture of the whole session has something to do with the lab when the session ends."""
    known = getattr(item, "_fixtureinfo", None)
    definitions = [one for ones in known.name2fixturedefs.values() for one in ones] if known is not None else []
    return any(
        one.scope == "session" and "lab" in one.argnames and inspect.isgeneratorfunction(one.func)
        for one in definitions
    )


def write(items: Sequence[pytest.Item], target: Path) -> None:
    """Write the facts of all collected tests, in their order."""
    target.write_text(json.dumps([[item.nodeid, *astuple(facts_of(item))] for item in items]))


def read(source: Path) -> dict[str, Facts]:
    """Read what `write` wrote, by the test's id."""
    return {test: Facts(*facts) for test, *facts in json.loads(source.read_text())}


def form(collection: Sequence[str], facts: Mapping[str, Facts], seconds: Mapping[str, float]) -> list[Group]:
    """Make the groups of a collection, those that are expected to take longest first.

    Args:
        collection: ids of the tests.
        facts: by id.
        seconds: what tests took in an earlier session; others are guessed.
    """
    groups: dict[str, Group] = {}
    for index, test in enumerate(collection):
        one = facts[test]
        group = groups.setdefault(one.group, Group(one.group, one.need))
        group.indices.append(index)
        group.seconds += seconds.get(test, one.seconds)
    return sorted(groups.values(), key=lambda group: -group.seconds)
