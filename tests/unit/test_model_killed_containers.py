"""When a job is taken for the one that kills its container."""

from k8spilot.model.killed_containers import KilledContainers


def test_the_second_time_is_the_jobs_own() -> None:
    killed = KilledContainers()
    assert [killed.add("1.0", "a"), killed.add("1.1", "a"), killed.add("1.0", "a")] == [False, False, True]


def test_jobs_of_the_same_number_from_two_access_points_are_two() -> None:
    killed = KilledContainers()
    assert [killed.add("1.0", "a"), killed.add("1.0", "b")] == [False, False]


def test_where_it_happens_to_others_too_a_job_has_more_tries() -> None:
    killed = KilledContainers()
    killed.add("1.0", "a")
    assert [killed.add("2.0", "b") for _ in range(4)] == [False, False, False, True]


def test_a_job_of_an_unknown_user_has_more_tries() -> None:
    killed = KilledContainers()
    assert [killed.add("2.0", "") for _ in range(4)] == [False, False, False, True]


def test_users_cannot_make_the_memory_grow() -> None:
    killed = KilledContainers()
    assert not any(killed.add(f"{number}.0", "a") for number in range(1000))
    assert not killed.add("0.0", "a")
