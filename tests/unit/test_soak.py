"""What a soak makes of what it saw."""

from itertools import islice

from soak.faults import drawn
from soak.ledger import Life
from soak.verdict import Story, judge

PLAIN = [("SubmitEvent", 0.0), ("ExecuteEvent", 1.0), ("JobTerminatedEvent", 3.0)]
AGAIN = [("SubmitEvent", 0.0), ("ExecuteEvent", 1.0), ("JobEvictedEvent", 2.0), *[(k, t + 4) for k, t in PLAIN[1:]]]


def test_jobs_that_end_as_they_should_are_right_also_when_they_were_started_twice() -> None:
    lives = {"a": Life("1.0", 1.0, 1.9), "b": Life("1.0", 5.0, 6.5), "c": Life("1.1", 1.0, 3.0)}
    verdict = judge([Story("1.0", AGAIN, 7, 7), Story("1.1", PLAIN, 0, 0)], lives)
    assert (verdict.good, verdict.submitted, verdict.right, verdict.again) == (True, 2, 2, 1)
    assert verdict.reasons == {"JobEvictedEvent": 1}


def test_a_job_without_an_end_is_lost() -> None:
    verdict = judge([Story("1.0", [*PLAIN[:2], ("JobHeldEvent", 2.0)], None, 7)], {})
    assert verdict.lost == ["1.0: SubmitEvent, ExecuteEvent, JobHeldEvent"]


def test_another_exit_code_or_another_file_is_a_wrong_result() -> None:
    verdict = judge([Story("1.0", PLAIN, 137, 7), Story("1.1", PLAIN, 7, 7, files=False)], {})
    assert [one.partition(":")[0] for one in verdict.wrong] == ["1.0", "1.1"]


def test_two_runs_at_one_time_or_two_ends_are_doubled() -> None:
    lives = {"a": Life("1.0", 1.0, 9.0), "b": Life("1.0", 5.0, 6.5)}
    verdict = judge([Story("1.0", AGAIN, 7, 7), Story("1.1", [*PLAIN, ("JobTerminatedEvent", 4.0)], 7, 7)], lives)
    assert verdict.doubled == ["1.0", "1.1"]


def test_a_job_that_waits_for_too_long_once_it_had_begun_is_stuck() -> None:
    waits = [("SubmitEvent", 0.0), ("ExecuteEvent", 500.0), ("JobEvictedEvent", 502.0), ("JobTerminatedEvent", 700.0)]
    assert judge([Story("1.0", waits, 7, 7)], {}).stuck == ["1.0: 198 s between JobEvictedEvent and JobTerminatedEvent"]


def test_a_seed_draws_the_same_faults_again() -> None:
    one, two = (list(islice(drawn(7), 50)) for _ in range(2))
    assert one == two
    assert not any(fault.whole_node for fault in islice(drawn(7, whole_node=False), 200))
