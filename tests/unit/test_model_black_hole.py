"""When failures close a slot."""

from k8spilot.model.black_hole import BlackHole

MINUTE, HOUR = 60.0, 3600.0


def closed(hole: BlackHole, users: str, now: float = 0.0, step: float = 1.0) -> list[float]:
    """For how long each failure closes the slot: of users with names of one letter, in that order."""
    return [hole.failed(user.strip(), now + number * step) for number, user in enumerate(users)]


def test_failures_of_three_users_close_a_slot() -> None:
    assert closed(BlackHole(), "abc") == [0, 0, 10 * MINUTE]


def test_one_user_alone_closes_nothing() -> None:
    assert set(closed(BlackHole(), "a" * 1000)) == {0}
    assert set(closed(BlackHole(), "ab" * 500)) == {0}
    assert set(closed(BlackHole(), " " * 1000)) == {0}  # no known owner


def test_a_job_that_passed_begins_the_count_anew() -> None:
    hole = BlackHole()
    assert closed(hole, "ab") == [0, 0]
    hole.passed()
    assert closed(hole, "cab") == [0, 0, 10 * MINUTE]


def test_failures_that_are_far_apart_do_not_count_together() -> None:
    assert closed(BlackHole(), "abc", step=0.6 * HOUR) == [0, 0, 0]
    assert closed(BlackHole(), "abca", step=0.4 * HOUR)[2] == 10 * MINUTE


def test_each_closure_takes_longer_than_the_one_before_until_a_job_passes() -> None:
    hole = BlackHole()
    found = [closed(hole, "abc", now=number * 10 * HOUR)[2] for number in range(7)]
    assert found == [10 * MINUTE, 20 * MINUTE, 40 * MINUTE, 80 * MINUTE, 160 * MINUTE, 4 * HOUR, 4 * HOUR]
    hole.passed()
    assert closed(hole, "abc", now=100 * HOUR)[2] == 10 * MINUTE
