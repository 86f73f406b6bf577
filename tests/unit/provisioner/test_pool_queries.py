"""Answers of the pool's daemons, in which users and other pilots may have written anything."""

import classad2
import pytest

from k8spilot.provisioner import pool_queries
from k8spilot.provisioner.pool_queries import largest, slots_of


def group(user: str, count: int, status: int = 1) -> classad2.ClassAd:
    """An ad of the aggregated query."""
    return classad2.ClassAd({"User": user, "JobCount": count, "JobStatus": status, "JobUniverse": 5})


def test_of_a_user_with_very_many_groups_the_largest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_queries, "_MOST_GROUPS", 3)
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
    memory = pool_queries.AccessPoints()
    assert memory.absent(set(), 0) == ["the collector has no access point"]
    assert memory.absent({"a", "b"}, 10) == []
    assert memory.absent({"b"}, 20) == ["the collector no longer has the access point a"]
    assert memory.absent(set(), 30) == [f"the collector no longer has the access point {name}" for name in "ab"]
    assert memory.absent({"b"}, 10 + 1801) == [], "it is not expected for ever"


def test_claims_without_a_job_are_told_apart() -> None:
    claimed = {"State": "Claimed", "EnteredCurrentState": 1, "MyCurrentTime": 2}
    for activity, idle in (("Idle", 1), ("Busy", 0)):
        (one,) = slots_of([classad2.ClassAd({**claimed, "Activity": activity})])
        assert (one.running, one.idle_claims) == (1, idle)
    whole = {"PartitionableSlot": True, "NumDynamicSlots": 3, "ChildActivity": ["Busy", "Idle", "Idle"]}
    (one,) = slots_of([classad2.ClassAd(whole)])
    assert (one.running, one.idle_claims) == (3, 2)
