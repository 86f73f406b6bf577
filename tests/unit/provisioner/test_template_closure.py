"""When a template is closed, for how long, and when it opens again."""

from typing import Any

import pytest

from k8spilot.provisioner.planning import template_closure
from k8spilot.provisioner.planning.model import Pilot, PilotState, TemplateClosure, Waiting
from tests.unit.provisioner.world import NOW, pilot, several, template

CPU = template()


def judge(
    before: TemplateClosure,
    *pilots: Pilot,
    refusal: str = "",
    now: float = NOW,
    waiting: Waiting = template_closure.NOBODY,
) -> TemplateClosure:
    """The record after a turn with these pilots."""
    return template_closure.judge(before, CPU, pilots, now, refusal, waiting)


NONE = TemplateClosure(version=CPU.closure_version)
"""The record of a template without failures."""


def failed(age: float = 1.0, state: PilotState = PilotState.FAILED, **more: Any) -> Pilot:
    """A pilot that failed so many seconds ago, ten seconds after its creation."""
    return pilot(state, trouble="no token", trouble_since=NOW - age, age=age + 10, **more)


@pytest.mark.parametrize("state", [PilotState.FAILED, PilotState.FAILING])
def test_a_failed_pilot_closes_its_template_and_is_named(state: PilotState) -> None:
    one = failed(state=state, name="cpu-7")
    record = judge(NONE, one)
    assert (record.failures, record.until) == (1, NOW + 30)
    assert record.reason == "the pilot cpu-7 failed: no token"


def test_the_time_doubles_with_each_failure_up_to_an_hour() -> None:
    record, pauses, now = NONE, [], NOW
    for _ in range(9):
        record = judge(record, failed(NOW - now + 1), now=now)
        pauses.append(record.pause)
        now = record.until + 20
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_many_pilots_that_fail_at_once_are_one_failure() -> None:
    assert judge(NONE, failed(5), failed(3), failed(1)).failures == 1


def test_a_failure_is_counted_once() -> None:
    one = failed()
    record = judge(NONE, one)
    assert judge(record, one) == record
    assert judge(record, one, now=NOW + 100) == record


def test_a_pilot_that_was_in_the_pool_says_nothing_of_its_template() -> None:
    assert judge(NONE, failed(has_worked=True)) == NONE


def test_a_pilot_in_the_pool_opens_the_template() -> None:
    record = judge(NONE, failed(60))
    assert judge(record, failed(60), pilot(PilotState.IDLE, started=NOW - 100)) == record, "it started before"
    works = pilot(PilotState.BUSY, started=NOW - 5)
    opened = judge(record, failed(60), works)
    assert opened.failures == 0
    assert judge(opened, failed(60), works) == opened, "the failed pod is still there"
    assert judge(opened, failed(60)) == opened, "and says nothing new when the good one has gone"


def test_another_version_of_the_template_opens_it() -> None:
    record = TemplateClosure(3, NOW + 1000, "x", NOW, version="old")
    assert judge(record) == NONE
    assert judge(record, failed(template_version="old")) == NONE, "pilots of the old version do not count"


@pytest.mark.parametrize(
    "trouble", ["Unschedulable: 0/1 nodes are available", "the container pilot waits: ErrImagePull"]
)
def test_a_pending_pilot_that_is_stuck_closes_its_template_again_and_again(trouble: str) -> None:
    stuck = pilot(PilotState.PENDING, age=70, trouble=trouble, trouble_since=NOW - 65)
    record = judge(NONE, stuck)
    assert (record.failures, record.reason) == (1, f"the pilot {stuck.name} does not start: {trouble}")
    assert judge(record, stuck, now=NOW + 29) == record
    assert judge(record, stuck, now=NOW + 31).until == NOW + 31 + 60


def test_a_scheduler_has_a_minute() -> None:
    assert judge(NONE, pilot(PilotState.PENDING, age=30, trouble="Unschedulable", trouble_since=NOW - 30)).failures == 0


def test_a_refusal_of_the_api_server_closes_the_template() -> None:
    record = judge(NONE, refusal="the namespace's quota is used up")
    assert (record.failures, record.reason) == (1, "the namespace's quota is used up")
    assert judge(record, pilot(PilotState.BUSY, started=NOW + 5), refusal="again", now=NOW + 40).until == NOW + 100


def test_black_holes_close_the_template_when_half_of_the_pilots_are() -> None:
    holes = several(2, PilotState.IDLE, is_black_hole=True)
    assert judge(NONE, *holes, *several(3, PilotState.BUSY)).failures == 0
    record = judge(NONE, *holes, *several(2, PilotState.BUSY))
    assert record.failures == 1
    assert record.reason.startswith("jobs of several users fail one after another in 2 of 4 pilots")


@pytest.mark.parametrize("refusal", ["the namespace's quota is used up", ""])
def test_want_of_room_or_quota_closes_for_a_minute_at_most(refusal: str) -> None:
    record = TemplateClosure(8, NOW - 1, "x", NOW - 2, CPU.closure_version)
    waits = [] if refusal else [pilot(PilotState.PENDING, age=70, trouble="Unschedulable: no", trouble_since=NOW - 65)]
    assert judge(record, *waits, refusal=refusal).until == NOW + 60


def test_a_pilot_that_runs_for_ten_minutes_outside_of_the_pool_closes_its_template() -> None:
    late = pilot(PilotState.STARTING, age=700, started=NOW - 300, awaited_since=NOW - 650)
    assert judge(NONE, pilot(PilotState.STARTING, age=700, awaited_since=NOW - 500)) == NONE
    assert "is not in the pool; look at its log" in judge(NONE, late).reason


def test_a_pilot_that_ends_again_and_again_is_one_failure() -> None:
    record = judge(NONE, pilot(PilotState.FAILING, age=100, trouble="no pool", trouble_since=NOW - 50))
    again = judge(record, pilot(PilotState.FAILING, age=100, trouble="no pool", trouble_since=NOW - 1), now=NOW + 40)
    assert again.failures == 1


def test_a_record_of_a_clock_that_was_ahead_does_not_count() -> None:
    day = 86_400.0
    assert judge(TemplateClosure(2, NOW + day, "x", NOW + day - 30)) == NONE


def in_vain(number: int, age: float = 30.0, **more: Any) -> list[Pilot]:
    """Pilots that were in the pool and ended without a job."""
    return several(number, PilotState.SUCCEEDED, age=age, has_worked=True, trouble_since=NOW - 5, **more)


FIVE = Waiting(5, NOW - 100)
"""Five jobs, some of which have waited for 100 s."""


def test_pilots_that_end_without_a_job_though_jobs_match_close_their_template_until_one_gets_a_job() -> None:
    assert judge(NONE, *in_vain(3)) == NONE, "the jobs have gone"
    assert judge(NONE, *in_vain(2), waiting=FIVE) == NONE
    assert judge(NONE, *in_vain(3), pilot(PilotState.BUSY, had_job=True), waiting=FIVE) == NONE
    record = judge(NONE, *in_vain(3), waiting=FIVE)
    assert record.failures == 1
    assert "the last 3 pilots ended without a job, though 5 idle jobs match" in record.reason
    assert judge(record, pilot(PilotState.IDLE, started=NOW + 40), now=NOW + 50) == record, "it has no job either"
    again = several(1, PilotState.SUCCEEDED, has_worked=True, trouble_since=NOW + 90)
    assert judge(record, *again, now=NOW + 100, waiting=FIVE).failures == 2
    assert judge(record, pilot(PilotState.BUSY, started=NOW + 40, had_job=True), now=NOW + 50).failures == 0


def test_pilots_that_were_idle_while_no_job_waited_did_not_come_in_vain() -> None:
    assert judge(NONE, *in_vain(3, age=400), waiting=FIVE) == NONE
    assert judge(NONE, *in_vain(3, age=400), waiting=Waiting(5, NOW - 420)).failures == 1


def test_pilots_of_one_burst_that_fail_one_after_another_are_one_failure() -> None:
    record = judge(NONE, failed(5, name="a"))
    for after in (5, 10, 35):
        late = pilot(PilotState.FAILED, age=15, trouble="no token", trouble_since=NOW + after)
        record = judge(record, late, now=NOW + after)
        assert (record.failures, record.until) == (1, NOW + 30)
    trial = pilot(PilotState.FAILED, age=-40, trouble="no token", trouble_since=NOW + 50)
    assert judge(record, trial, now=NOW + 50).failures == 2


def test_a_full_cluster_for_an_hour_does_not_make_the_next_failure_cost_an_hour() -> None:
    record = NONE
    for minute in range(60):
        record = judge(record, refusal="the namespace's quota is used up", now=NOW + 70 * minute)
    assert (record.failures, record.pause) == (1, 60)
    trial = pilot(PilotState.FAILED, age=-4200, trouble="no token", trouble_since=NOW + 4210)
    assert judge(record, trial, now=NOW + 4211).pause == 60


def test_a_pilot_that_waits_without_a_reason_counts_after_ten_minutes() -> None:
    waits = pilot(PilotState.PENDING, age=700, awaited_since=NOW - 599)
    assert judge(NONE, waits) == NONE
    record = judge(NONE, pilot(PilotState.PENDING, age=700, awaited_since=NOW - 601))
    assert "is not in the pool; look at its Events (kubectl describe pod)" in record.reason


def test_a_record_without_a_later_trial_is_forgotten() -> None:
    record = judge(NONE, failed(5))
    assert judge(record, failed(5), now=NOW + 629) == record
    assert judge(record, failed(5), now=NOW + 631) == TemplateClosure(version=record.version, last=record.last)
    assert judge(record, failed(5), pilot(PilotState.STARTING, age=-600), now=NOW + 631) == record, "a trial"


def test_after_the_clock_went_back_an_old_failure_closes_nothing() -> None:
    record = judge(TemplateClosure(1, NOW + 3600, "x", NOW + 3570, CPU.closure_version, pause=30), failed(-3570))
    assert (record.failures, record.last) == (0, NOW)
    assert judge(record, failed(-3570), now=NOW + 5).failures == 0
    assert judge(record, failed(-4), now=NOW + 5).failures == 1, "a new one does"


def test_a_change_of_the_rules_for_jobs_opens_the_template() -> None:
    record = judge(NONE, failed(5))
    other = template(jobs="RequestCpus > 1")
    assert template_closure.judge(record, other, [], NOW + 1) == TemplateClosure(version=other.closure_version)
