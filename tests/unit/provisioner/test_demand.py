"""Clusters that share a pool's demand without a coordinator."""

import pytest
from hypothesis import strategies as st

from k8spilot.provisioner.planning.demand import share_of
from k8spilot.provisioner.planning.model import Demand
from k8spilot.provisioner.settings import Share
from k8spilot.provisioner.settings import share as parse
from tests.fuzz.drawing import drawn
from tests.unit.provisioner.world import demand, jobs


def idle(found: Demand) -> int:
    """The idle jobs of a demand."""
    return sum(group.idle for group in found.groups)


@drawn(100, numbers=st.lists(st.integers(1, 40), min_size=1, max_size=8), cut=st.floats(0.05, 0.95))
def test_two_clusters_serve_each_job_once(numbers: list[int], cut: float) -> None:
    wanted = demand(*(jobs(number, user=f"user{place}") for place, number in enumerate(numbers)))
    first, second = (share_of(wanted, part, 0) for part in (Share(0, cut), Share(cut, 1)))
    assert abs(idle(first) + idle(second) - sum(numbers)) <= 1, "but for the last digit of a border"
    assert abs(idle(first) - cut * sum(numbers)) <= len(numbers)


def test_the_only_cluster_serves_all() -> None:
    wanted = demand(jobs(20))
    assert share_of(wanted, Share(), 5) is wanted


def test_what_a_clusters_own_pilots_run_is_taken_off_its_part() -> None:
    wanted = Demand([jobs(10)], running=10)
    assert idle(share_of(wanted, Share(0, 0.5), 10)) == 0, "it runs its half of twenty"
    assert idle(share_of(wanted, Share(0.5, 1), 0)) == 10


@pytest.mark.parametrize(
    ("text", "begin", "end"), [("1", 0, 1), ("0.4", 0, 0.4), ("0.4-1", 0.4, 1), (" 0.25 - 0.5 ", 0.25, 0.5)]
)
def test_a_share_is_a_part_of_the_demand(text: str, begin: float, end: float) -> None:
    assert parse(text) == Share(begin, end)


@pytest.mark.parametrize("text", ["", "0", "1.5", "0.6-0.4", "half", "0.1-0.2-0.3", "."])
def test_anything_else_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="part of the demand"):
        parse(text)
