"""Choice of tests for `make test`, for a change that lands (CI, `make test ALL=1`), and for the night.

The marker `landing` has what shows the same as another test in another place, which this module marks, and what takes
long for what it shows, such as the end of a lease, which has the marker in its file. `make test-nightly` has the marker
`nightly`, too: cases that show more of the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from lab.levels import NAMESPACES

LANDING: Final = "landing"
LEVELS: Final = tuple(NAMESPACES)
"""Levels of Pod Security. Of a test that runs at each, `make test` has the first."""


def each_day(daily: Collection[Any], cases: Iterable[Any], landing: Collection[Any] = ()) -> list[Any]:
    """Parameters of a test: those in `daily` as they are, those in `landing` marked so, the others marked `nightly`.

    Raises:
        ValueError: `daily` or `landing` names what is no case.
    """
    cases = list(cases)
    if unknown := [one for one in (*daily, *landing) if one not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    marks = {False: pytest.mark.nightly, True: pytest.mark.landing}
    return [one if one in daily else pytest.param(one, marks=marks[one in landing]) for one in cases]


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark what `make test` leaves to CI.

    - The engine's tests on the node that run on the simulator, too, unless their result depends on the kind of cluster.
    - Of tests at both levels of Pod Security, those at the second level.
    """
    first = {_without_level(item) for item in items if _level(item) == LEVELS[0] and _is_daily(item)}
    simulated = {_test(item) for item in items if _parameters(item).get("engine") == "simulator" and _is_daily(item)}
    for item in items:
        is_of_the_cluster = item.get_closest_marker("cluster") is not None
        is_second_place = (
            _parameters(item).get("engine") == "node" and _test(item) in simulated and not is_of_the_cluster
        )
        is_second_level = _level(item) == LEVELS[1] and _without_level(item) in first
        if is_second_place or is_second_level:
            item.add_marker(LANDING)


def without_nightly(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that are not nightly, and those that are."""
    return [item for item in items if _is_daily(item)], [item for item in items if not _is_daily(item)]


def _is_daily(item: pytest.Item) -> bool:
    return item.get_closest_marker("nightly") is None


def _parameters(item: pytest.Item) -> Mapping[str, Any]:
    known = getattr(item, "callspec", None)
    return {} if known is None else known.params


def _is_level(value: Any) -> bool:
    return isinstance(value, str) and value in LEVELS


def _level(item: pytest.Item) -> Any:
    return next(filter(_is_level, _parameters(item).values()), None)


def _without_level(item: pytest.Item) -> tuple[str, str]:
    """Return what a test has in common with itself at another level."""
    others = {
        name: value for name, value in _parameters(item).items() if not (isinstance(value, str) and value in LEVELS)
    }
    return _test(item), repr(others)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
