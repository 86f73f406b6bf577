"""Limit of a job's disk, and the time of the next look at its use."""

import pytest

from k8spilot.model.disk import LONGEST_SECONDS, MIB, DiskLimits, Measurement, is_due

GIB = 1024 * MIB


def test_the_lower_limit_counts_and_without_any_there_is_none() -> None:
    assert DiskLimits(slot=10, requested=20).least == 10
    assert DiskLimits(slot=20, requested=10).least == 10
    assert DiskLimits().least is None
    assert DiskLimits().excess(10**15) == ""


def test_the_sentence_names_the_use_and_the_limit_that_it_is_beyond() -> None:
    limits = DiskLimits(slot=100 * MIB, requested=10 * MIB)
    assert limits.excess(10 * MIB) == ""
    assert limits.excess(10 * MIB + 1).startswith(
        "the job has used 11 MiB of disk, and requested 10 MiB; set request_d"
    )
    assert (
        DiskLimits(slot=10 * MIB).excess(11 * MIB).startswith("the job has used 11 MiB of disk, and the slot has 10 ")
    )


@pytest.mark.parametrize(
    ("used", "waited", "fallen", "due"),
    [
        (0, 0.3, 0, False),
        (0, LONGEST_SECONDS, 0, True),
        (0, 0.3, 300 * MIB, True),  # more than a quarter of the room
        (0, 0.3, 200 * MIB, False),
        (900 * MIB, 0.3, 40 * MIB, True),  # the room has become small
        (2 * GIB, 0.3, 512 * 1024, False),  # there is no room, but others write little things, too
        (2 * GIB, 0.3, MIB, True),
    ],
)
def test_a_look_is_due_before_the_rest_of_the_room_can_be_filled(
    used: int, waited: float, fallen: int, due: bool
) -> None:
    assert is_due(Measurement(at=100.0, seconds=0.001, used=used), 100.0 + waited, fallen, GIB) is due


def test_looks_at_many_files_take_a_tenth_of_the_time_and_a_quarter_if_the_room_may_be_full() -> None:
    slow = Measurement(at=100.0, seconds=2.0, used=512 * MIB)
    assert not is_due(slow, 119.0, 200 * MIB, GIB)
    assert is_due(slow, 121.0, 200 * MIB, GIB)
    assert not is_due(slow, 105.0, 512 * MIB, GIB)
    assert is_due(slow, 107.0, 512 * MIB, GIB)
