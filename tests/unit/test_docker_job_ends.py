"""The owner of a container's job, and the consequences of the ends of jobs."""

import pytest

from k8spilot.docker.job_ends import JobEnds, owner_of
from k8spilot.model.killed_containers import KilledContainers
from k8spilot.payload.listeners import Reason, SlotListener


@pytest.mark.parametrize(
    ("host", "owner"),
    [
        ("alice-12.3-site.pilot-7", "alice"),
        ("alice-b-12.3-x", "alice-b"),
        ("al.ice_x-12.3-x-12.3-y", "al.ice_x"),
        ("alice-12.4-site.pilot-7", ""),
        ("a-1.1-12.3-x", ""),
        ("-12.3-x", ""),
        ("alice-12.3", ""),
        ("", ""),
        (None, ""),
        (["alice-12.3-x"], ""),
    ],
)
def test_htcondors_host_name_tells_the_owner(host: object, owner: str) -> None:
    assert owner_of("12.3", {"Hostname": host}) == owner


class Heard(SlotListener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.closed: list[tuple[Reason, float]] = []

    async def away(self, why: Reason, seconds: float = 0) -> None:
        self.closed.append((why, seconds))


async def test_the_third_job_in_a_row_that_is_lost_closes_the_slot_for_a_while() -> None:
    heard = Heard()
    ends = JobEnds(heard, KilledContainers())
    await ends.lost()
    await ends.lost()
    assert heard.closed == []
    await ends.lost()
    await ends.lost()
    assert heard.closed == [("lost", 180.0)] * 2
