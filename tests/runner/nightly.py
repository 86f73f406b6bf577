"""Cases of a test that `make test` leaves out, since they show more of the same: the marker `nightly`."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def each_day(daily: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those in `daily` as they are, the others marked `nightly`.

    Raises:
        ValueError: `daily` names what is no case.
    """
    cases = list(cases)
    if unknown := [one for one in daily if one not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [one if one in daily else pytest.param(one, marks=pytest.mark.nightly) for one in cases]
