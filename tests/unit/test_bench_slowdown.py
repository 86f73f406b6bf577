"""Two payloads that take turns: what their turns say of the container that one of them is in."""

import pytest

from bench.parts.slowdown import Pair
from lab.errors import LabError


def test_turns_are_compared_with_those_beside_them() -> None:
    pair = Pair({10: 0.05, 12: 0.06, 40: 9.0}, {11: 0.05, 13: 0.06, 20: 0.01})
    assert pair.typical == pytest.approx(1.0)  # 0.05/0.05, 0.06/0.05, 0.06/0.06
    assert pair.all == pytest.approx(0.17 / 0.16)


def test_the_fastest_turns_are_compared_whenever_they_were() -> None:
    assert Pair({10: 0.06, 12: 0.05}, {11: 0.1, 13: 0.04}).fastest == pytest.approx(1.25)


def test_what_is_slow_now_and_then_is_seen_in_all_turns_only() -> None:
    ours = {number: 0.1 if number == 20 else 0.05 for number in range(0, 40, 2)}
    pair = Pair(ours, dict.fromkeys(range(1, 40, 2), 0.05))
    assert (pair.fastest, pair.typical) == (1.0, 1.0)
    assert pair.all > 1.04


@pytest.mark.parametrize(
    ("ours", "theirs"), [({}, {}), ({10: 0.1}, {}), ({10: 0.1}, {15: 0.1}), ({10: 0.1}, {10: 0.1})]
)
def test_payloads_that_did_not_run_side_by_side_are_not_compared(
    ours: dict[int, float], theirs: dict[int, float]
) -> None:
    with pytest.raises(LabError, match="beside each other"):
        Pair(ours, theirs)
