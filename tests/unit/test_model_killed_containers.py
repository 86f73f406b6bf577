"""When a job is taken for the one that kills its container."""

from k8spilot.model.killed_containers import IN_A_ROW, DeathCause, KilledContainers

NONE, JOB, USER = DeathCause.NONE, DeathCause.JOB, DeathCause.USER


def test_the_second_time_is_the_jobs_own() -> None:
    killed = KilledContainers()
    assert [killed.add("1.0", "a"), killed.add("1.1", "a"), killed.add("1.0", "a")] == [NONE, NONE, JOB]


def test_jobs_of_the_same_number_from_two_access_points_are_two() -> None:
    killed = KilledContainers()
    assert [killed.add("1.0", "a"), killed.add("1.0", "b")] == [NONE, NONE]


def test_where_it_happens_to_others_too_a_job_has_more_tries() -> None:
    killed = KilledContainers()
    killed.add("1.0", "a")
    assert [killed.add("2.0", "b") for _ in range(4)] == [NONE, NONE, NONE, JOB]


def test_a_job_of_an_unknown_user_has_more_tries() -> None:
    killed = KilledContainers()
    assert [killed.add("2.0", "") for _ in range(4)] == [NONE, NONE, NONE, JOB]


def test_job_after_job_of_a_user_is_the_users_own_until_one_has_a_result() -> None:
    killed = KilledContainers()
    assert [killed.add(f"1.{number}", "a") for number in range(IN_A_ROW + 2)] == [*[NONE] * IN_A_ROW, USER, USER]
    killed.passed("a")
    assert [killed.add(f"2.{number}", "a") for number in range(IN_A_ROW + 1)] == [*[NONE] * IN_A_ROW, USER]


def test_where_it_happens_to_others_too_a_user_has_more_tries() -> None:
    killed = KilledContainers()
    killed.add("1.0", "a")
    assert [killed.add(f"2.{number}", "b") for number in range(11)] == [*[NONE] * 10, USER]
    assert {killed.add(f"3.{number}", "") for number in range(20)} == {NONE}


def test_users_cannot_make_the_memory_grow() -> None:
    killed = KilledContainers()
    for number in range(1000):
        killed.add(f"{number}.0", f"user{number}")
    assert (len(killed._jobs), len(killed._rows)) == (256, 256)
    assert killed.add("0.0", "user0") is NONE
