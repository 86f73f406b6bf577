"""When a template is closed, for how long, and when it opens again."""

from typing import Any

import pytest

from k8spilot.provisioner import backoff
from k8spilot.provisioner.model import Closure, Pilot, PilotState
from tests.unit.provisioner.world import NOW, pilot, several, template

CPU = template()


def judge(before: Closure, *pilots: Pilot, refusal: str = "", now: float = NOW) -> Closure:
    """The record after a turn with these pilots."""
    return backoff.judge(before, CPU, pilots, now, refusal)


def failed(age: float = 1.0, state: PilotState = PilotState.FAILED, **more: Any) -> Pilot:
    """A pilot that failed so many seconds ago."""
    return pilot(state, trouble="no token", trouble_since=NOW - age, **more)


@pytest.mark.parametrize("state", [PilotState.FAILED, PilotState.FAILING])
def test_a_failed_pilot_closes_its_template_and_is_named(state: PilotState) -> None:
    one = failed(state=state, name="cpu-7")
    record = judge(Closure(), one)
    assert (record.failures, record.until) == (1, NOW + 30)
    assert record.reason == "the pilot cpu-7 failed: no token"


def test_the_time_doubles_with_each_failure_up_to_an_hour() -> None:
    record, pauses = Closure(), []
    for number in range(9):
        now = NOW + 10_000 * number
        record = judge(record, failed(-10_000 * number + 1), now=now)
        pauses.append(record.until - now)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_many_pilots_that_fail_at_once_are_one_failure() -> None:
    assert judge(Closure(), failed(5), failed(3), failed(1)).failures == 1


def test_a_failure_is_counted_once() -> None:
    one = failed()
    record = judge(Closure(), one)
    assert judge(record, one) == record
    assert judge(record, one, now=NOW + 100) == record


def test_a_pilot_that_was_in_the_pool_says_nothing_of_its_template() -> None:
    assert judge(Closure(), failed(has_worked=True)) == Closure()


def test_a_pilot_in_the_pool_opens_the_template() -> None:
    record = judge(Closure(), failed(60))
    assert judge(record, failed(60), pilot(PilotState.IDLE, started=NOW - 100)) == record, "it started before"
    works = pilot(PilotState.BUSY, started=NOW - 5)
    opened = judge(record, failed(60), works)
    assert opened.failures == 0
    assert judge(opened, failed(60), works) == opened, "the failed pod is still there"
    assert judge(opened, failed(60)) == opened, "and says nothing new when the good one has gone"


def test_another_version_of_the_template_opens_it() -> None:
    record = Closure(3, NOW + 1000, "x", NOW, version="old")
    assert judge(record) == Closure()
    assert judge(record, failed(template_version="old")) == Closure(), "pilots of the old version do not count"


@pytest.mark.parametrize(
    "trouble", ["Unschedulable: 0/1 nodes are available", "the container pilot waits: ErrImagePull"]
)
def test_a_pending_pilot_that_is_stuck_closes_its_template_again_and_again(trouble: str) -> None:
    stuck = pilot(PilotState.PENDING, age=70, trouble=trouble, trouble_since=NOW - 65)
    record = judge(Closure(), stuck)
    assert (record.failures, record.reason) == (1, f"the pilot {stuck.name} does not start: {trouble}")
    assert judge(record, stuck, now=NOW + 29) == record
    assert judge(record, stuck, now=NOW + 31).until == NOW + 31 + 60


def test_a_scheduler_has_a_minute() -> None:
    assert (
        judge(Closure(), pilot(PilotState.PENDING, age=30, trouble="Unschedulable", trouble_since=NOW - 30)).failures
        == 0
    )


def test_a_refusal_of_the_api_server_closes_the_template() -> None:
    record = judge(Closure(), refusal="the namespace's quota is used up")
    assert (record.failures, record.reason) == (1, "the namespace's quota is used up")
    assert judge(record, pilot(PilotState.BUSY, started=NOW + 5), refusal="again", now=NOW + 40).failures == 2


def test_black_holes_close_the_template_when_half_of_the_pilots_are() -> None:
    holes = several(2, PilotState.IDLE, is_black_hole=True)
    assert judge(Closure(), *holes, *several(3, PilotState.BUSY)).failures == 0
    record = judge(Closure(), *holes, *several(2, PilotState.BUSY))
    assert record.failures == 1
    assert record.reason.startswith("jobs of several users fail one after another in 2 of 4 pilots")


@pytest.mark.parametrize("refusal", ["the namespace's quota is used up", ""])
def test_want_of_room_or_quota_closes_for_a_minute_at_most(refusal: str) -> None:
    record = Closure(8, NOW - 1, "x", NOW - 2)
    waits = [] if refusal else [pilot(PilotState.PENDING, age=70, trouble="Unschedulable: no", trouble_since=NOW - 65)]
    assert judge(record, *waits, refusal=refusal).until == NOW + 60


def test_a_pilot_that_runs_for_ten_minutes_outside_of_the_pool_closes_its_template() -> None:
    late = pilot(PilotState.STARTING, age=700, started=NOW - 650)
    assert judge(Closure(), pilot(PilotState.STARTING, age=700, started=NOW - 500)) == Closure()
    assert "is not in the pool; look at its log" in judge(Closure(), late).reason


def test_a_pilot_that_ends_again_and_again_is_one_failure() -> None:
    record = judge(Closure(), pilot(PilotState.FAILING, age=100, trouble="no pool", trouble_since=NOW - 50))
    again = judge(record, pilot(PilotState.FAILING, age=100, trouble="no pool", trouble_since=NOW - 1), now=NOW + 40)
    assert again.failures == 1


def test_a_record_of_a_clock_that_was_ahead_does_not_count() -> None:
    day = 86_400.0
    assert judge(Closure(2, NOW + day, "x", NOW + day - 30)) == Closure()


def in_vain(number: int, **more: Any) -> list[Pilot]:
    """Pilots that were in the pool and ended without a job."""
    return several(number, PilotState.SUCCEEDED, has_worked=True, trouble_since=NOW - 5, **more)


def test_pilots_that_end_without_a_job_though_jobs_match_close_their_template_until_one_gets_a_job() -> None:
    assert backoff.judge(Closure(), CPU, in_vain(3), NOW, idle=0) == Closure(), "the jobs have gone"
    assert backoff.judge(Closure(), CPU, in_vain(2), NOW, idle=5) == Closure()
    assert backoff.judge(Closure(), CPU, [*in_vain(3), pilot(PilotState.BUSY, had_job=True)], NOW, idle=5) == Closure()
    record = backoff.judge(Closure(), CPU, in_vain(3), NOW, idle=5)
    assert record.failures == 1
    assert "the last 3 pilots ended without a job, though 5 idle jobs match" in record.reason
    assert judge(record, pilot(PilotState.IDLE, started=NOW + 40), now=NOW + 50) == record, "it has no job either"
    again = several(1, PilotState.SUCCEEDED, has_worked=True, trouble_since=NOW + 90)
    assert backoff.judge(record, CPU, again, NOW + 100, idle=5).failures == 2
    assert judge(record, pilot(PilotState.BUSY, started=NOW + 40, had_job=True), now=NOW + 50).failures == 0
