"""Which tests run when: `make test`, before a change lands (CI, `make test ALL=1`), or at night.

The marker `landing` has what shows the same as another test in another place. This module sets it for two kinds; others
have it in their files. `make test-nightly` has the marker `nightly`, too: cases that show more of the same.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import pytest

LANDING: Final = "landing"
FIRST_LEVEL: Final = "baseline"
"""The level of Pod Security that `make test` has of a test that runs at each."""


def each_day(daily: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those in `daily` as they are, the others marked `nightly`.

    Raises:
        ValueError: `daily` names what is no case.
    """
    cases = list(cases)
    if unknown := [one for one in daily if one not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [one if one in daily else pytest.param(one, marks=pytest.mark.nightly) for one in cases]


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark what `make test` leaves to CI.

    - The engine's tests on the node that run on the simulator, too, unless their result depends on the kind of cluster.
    - Of tests at both levels of Pod Security, those at the second level.
    """
    first = {_without_level(item) for item in items if _parameter(item, "level") == FIRST_LEVEL and _is_daily(item)}
    for item in items:
        is_second_place = _parameter(item, "engine") == "node" and item.get_closest_marker("cluster") is None
        is_second_level = _parameter(item, "level") not in (None, FIRST_LEVEL) and _without_level(item) in first
        if is_second_place or is_second_level:
            item.add_marker(LANDING)


def without_nightly(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that are not nightly, and those that are."""
    return [item for item in items if _is_daily(item)], [item for item in items if not _is_daily(item)]


def _is_daily(item: pytest.Item) -> bool:
    return item.get_closest_marker("nightly") is None


def _parameter(item: pytest.Item, name: str) -> Any:
    known = getattr(item, "callspec", None)
    return None if known is None else known.params.get(name)


def _without_level(item: pytest.Item) -> tuple[str, str]:
    """Return what a test has in common with itself at another level."""
    assert isinstance(item, pytest.Function)
    others = {name: value for name, value in item.callspec.params.items() if name != "level"}
    return item.nodeid.partition("[")[0], repr(others)
