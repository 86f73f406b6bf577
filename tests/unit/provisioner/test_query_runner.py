"""Answers of the pool's daemons, in which users and other pilots may have written anything."""

import time

import classad2
import pytest

from k8spilot.provisioner.pool import query_runner
from k8spilot.provisioner.pool.access_points import AccessPoints, access_point_in, as_suspect
from k8spilot.provisioner.pool.matching import Matcher
from k8spilot.provisioner.pool.query_runner import largest, slots_of


def group(user: str, count: int, status: int = 1) -> classad2.ClassAd:
    """An ad of the aggregated query."""
    return classad2.ClassAd({"User": user, "JobCount": count, "JobStatus": status, "JobUniverse": 5})


def test_of_a_user_with_very_many_groups_the_largest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_runner, "_MOST_GROUPS", 3)
    many = [group("alice", number) for number in range(1, 8)]
    found = [(ad["User"], ad["JobCount"]) for ad in largest([*many, group("bob", 1), group("bob", 2, 5)])]
    assert found == [("alice", 7), ("alice", 6), ("alice", 5), ("bob", 1)]


@pytest.mark.parametrize("value", ["words", float("inf"), float("nan"), classad2.ExprTree("error"), [1, "a"], True])
def test_no_value_in_the_ad_of_a_slot_ends_the_query(value: object) -> None:
    names = ("NumDynamicSlots", "Cpus", "Memory", "TotalSlotGPUs", "GLIDEIN_ToRetire", "K8SBlackHoleUntil")
    more = ("RecentJobBusyTimeCount", "RecentJobBusyTimeAvg", "ChildEnteredCurrentState", "MyCurrentTime")
    ad = classad2.ClassAd({"K8SPodUID": "u", "PartitionableSlot": True, **dict.fromkeys((*names, *more), value)})
    (one,) = slots_of([ad])
    assert one.pod_uid == "u"


def test_a_slot_tells_how_long_its_jobs_take() -> None:
    values = {"State": "Claimed", "EnteredCurrentState": 1000, "MyCurrentTime": 1600}
    ended = {"RecentJobBusyTimeCount": 4, "RecentJobBusyTimeAvg": 25.0}
    (one,) = slots_of([classad2.ClassAd({**values, **ended})])
    assert (one.running, one.ended_jobs, one.ended_seconds, one.claimed_seconds) == (1, 4, 100.0, 600.0)


def test_a_partitionable_slot_tells_for_how_long_its_claims_last() -> None:
    values = {"PartitionableSlot": True, "NumDynamicSlots": 2, "MyCurrentTime": 5000}
    (one,) = slots_of([classad2.ClassAd({**values, "ChildEnteredCurrentState": [4900, 1000]})])
    assert (one.running, one.claimed_seconds) == (2, 100.0 + 1200.0)


def test_an_access_point_that_the_collector_has_forgotten_is_missed() -> None:
    memory = AccessPoints()
    assert memory.absent(set(), 0) == ["the collector has no access point"]
    assert memory.absent({"a", "b"}, 10) == []
    assert memory.absent({"b"}, 20) == ["the collector no longer has the access point a"]
    assert memory.absent(set(), 30) == [f"the collector no longer has the access point {name}" for name in "ab"]
    assert memory.absent({"b"}, 10 + 1801) == [], "it is not expected for ever"


def test_an_access_point_that_is_silent_for_long_is_taken_for_one_without_jobs() -> None:
    memory = AccessPoints()
    memory.answered("a", 100)
    assert [memory.is_missed("a", now) for now in (200, 1899, 1901)] == [True, True, False]
    assert [memory.is_missed("new", now) for now in (200, 1999, 2001)] == [True, True, False]


def test_once_a_look_takes_long_the_other_access_points_wait_for_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_runner, "_jobs", lambda *_: ([], 3))
    grouping = query_runner.Grouping(Matcher(()), {})
    ads = [classad2.ClassAd({"Name": name}) for name in "ab"]
    now = time.monotonic()
    found = query_runner.demand_of(ads, grouping, AccessPoints(), now)
    assert (found.running, found.missing, found.is_complete) == (6, [], True)
    late = query_runner.demand_of(ads, grouping, AccessPoints(), now - 41)
    assert (late.running, len(late.missing), late.is_complete) == (0, 2, False)


def test_a_user_whose_expressions_take_long_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_runner, "_USER_SECONDS", -1.0)
    grouping = query_runner.Grouping(Matcher(()), {"bob": "they ended a worker"})
    reasons = [grouping.group(group(user, 1)).mismatch for user in ("alice", "alice", "bob")]
    assert reasons == [
        "there is no template that can be used",
        "the expressions of this user's jobs take too long to evaluate",
        "they ended a worker",
    ]


def test_claims_without_a_job_are_told_apart() -> None:
    claimed = {"State": "Claimed", "EnteredCurrentState": 1, "MyCurrentTime": 2}
    for activity, idle in (("Idle", 1), ("Busy", 0)):
        (one,) = slots_of([classad2.ClassAd({**claimed, "Activity": activity})])
        assert (one.running, one.idle_claims) == (1, idle)
    whole = {"PartitionableSlot": True, "NumDynamicSlots": 3, "ChildActivity": ["Busy", "Idle", "Idle"]}
    (one,) = slots_of([classad2.ClassAd(whole)])
    assert (one.running, one.idle_claims) == (3, 2)


def refuse(*_: object) -> None:
    """An answer that is too large."""
    raise MemoryError


def test_an_access_point_whose_answer_is_too_large_is_left_out_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_runner, "_jobs", lambda ad, _: refuse() if ad["Name"] == "a" else ([], 3))
    ads = [classad2.ClassAd({"Name": name}) for name in "ab"]
    memory = AccessPoints()
    found = query_runner.demand_of(ads, query_runner.Grouping(Matcher(()), {}), memory, time.monotonic())
    assert (found.running, found.is_complete) == (3, False)
    assert found.missing == ["the answer of the access point a took too much memory; it is left out for ten minutes"]
    assert memory.why_left_out("a", time.monotonic() + 500) == found.missing[0]


def test_an_access_point_that_cost_a_worker_its_life_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_runner, "_jobs", lambda *_: ([], 3))
    memory = AccessPoints()
    why = memory.leave_out_large("a", "memory or time")
    ads = [classad2.ClassAd({"Name": name}) for name in "ab"]
    found = query_runner.demand_of(ads, query_runner.Grouping(Matcher(()), {}), memory, time.monotonic())
    assert (found.running, found.missing) == (3, [why])
    assert memory.why_left_out("a", time.monotonic() + 601) == ""
    assert access_point_in(as_suspect("a")) == "a"
    assert access_point_in("alice@pool") == ""
