"""Longest text that a job may have as an argument and as a variable: Linux's 131,071 bytes."""

from typing import Any, cast

import pytest

from tests.e2e.pool import Pool, result

MOST = 131_071
COUNT = """
echo $# ${#1} $(printf %s "$*" | wc -c)
env | grep '^BIG' | wc -lc
"""


def _sizes(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def test_arguments_and_environment_as_long_as_linux_takes_them(pool: Pool) -> None:
    # In one piece; in many; both with the other at its limit.
    one: Any = {"arguments": f'"{"x" * MOST}"', "environment": f'"BIG={"e" * (MOST - 4)}"'}
    many_arguments = " ".join(["x" * 9] * (MOST // 10))
    many_variables = " ".join(f"BIG{number:04}={'e' * 91}" for number in range(MOST // 100))
    many: Any = {"arguments": f'"{many_arguments}"', "environment": f'"{many_variables}"'}
    whole, parts = pool.shell(COUNT, **one), pool.shell(COUNT, **many)
    assert _sizes(result(whole).text) == [1, MOST, MOST, 1, MOST + 1]
    count = MOST // 10
    assert _sizes(result(parts).text) == [count, 9, 10 * count - 1, MOST // 100, MOST // 100 * 100]


@pytest.mark.landing
def test_longer_ones_are_held_and_the_slot_takes_the_next_job(pool: Pool) -> None:
    for more in cast(
        "list[dict[str, Any]]", [{"arguments": f'"{"x" * (MOST + 1)}"'}, {"environment": f'"BIG={"e" * (MOST - 3)}"'}]
    ):
        held = pool.shell(COUNT, **more).held()
        assert held.attributes["HoldReasonCode"] == 35
    assert result(pool.shell("echo fine", user="bob")).text == "fine\n"
