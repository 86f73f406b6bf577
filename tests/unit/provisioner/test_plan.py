"""The plan: how many pilots a turn makes and deletes, and why."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st

from k8spilot.provisioner.planning import scaling
from k8spilot.provisioner.planning.model import (
    Demand,
    Pilot,
    PilotState,
    SlotKind,
    SlotSpace,
    Template,
    TemplateClosure,
)
from k8spilot.provisioner.planning.plan import TurnPlan, plan
from k8spilot.provisioner.planning.resources import Resources
from tests.fuzz.drawing import drawn
from tests.unit.provisioner.world import NOW, ONE, demand, jobs, pilot, several, template

BIG = SlotKind(1, Resources(8, 8192, 2**23), 4)
"""A partitionable slot over four payload containers."""


def planned(
    wanted: Demand,
    *templates: Template,
    pilots: list[Pilot] | None = None,
    closures: dict[str, TemplateClosure] | None = None,
) -> TurnPlan:
    """The plan of a turn."""
    return plan(wanted, templates or (template(),), pilots or [], closures or {}, NOW)


def made(found: TurnPlan) -> dict[str, int]:
    """The pilots that it makes, by template."""
    return {name: one.create for name, one in found.templates.items() if one.create}


def test_each_idle_job_gets_a_pilot() -> None:
    assert made(planned(demand(jobs(3)))) == {"cpu": 3}


def test_without_jobs_nothing_happens() -> None:
    assert made(planned(demand())) == {}


@pytest.mark.parametrize("state", [PilotState.PENDING, PilotState.STARTING, PilotState.IDLE])
def test_jobs_that_pilots_under_way_will_take_get_no_others(state: PilotState) -> None:
    assert made(planned(demand(jobs(3)), pilots=several(2, state))) == {"cpu": 1}


@pytest.mark.parametrize(
    "state", [PilotState.BUSY, PilotState.RETIRING, PilotState.LOST, PilotState.FAILING, PilotState.FAILED]
)
def test_pilots_that_take_no_job_soon_do_not_count_as_room(state: PilotState) -> None:
    assert made(planned(demand(jobs(3)), pilots=several(2, state))) == {"cpu": 3}


def test_jobs_that_busy_pilots_take_soon_get_none() -> None:
    short = several(2, PilotState.BUSY, ended_jobs=10, busy_seconds=400)
    assert made(planned(demand(jobs(6)), pilots=short)) == {}, "three jobs each in two minutes"
    assert made(planned(demand(jobs(8)), pilots=short)) == {"cpu": 2}


def test_busy_pilots_whose_jobs_are_long_take_none_soon() -> None:
    assert made(planned(demand(jobs(2)), pilots=several(5, PilotState.BUSY, busy_seconds=6000))) == {"cpu": 2}


def test_an_idle_pilot_takes_several_short_jobs() -> None:
    short = [*several(1, PilotState.IDLE), *several(1, PilotState.BUSY, ended_jobs=10, busy_seconds=600)]
    assert made(planned(demand(jobs(5)), pilots=short)) == {}, "three in the idle pilot and two in the other"


def test_of_many_jobs_whose_duration_nobody_knows_a_part_gets_pilots_at_first() -> None:
    found = planned(demand(jobs(80)))
    assert made(found) == {"cpu": 14}
    limit = "14 pilots are on their way, and more follow for jobs that then still wait"
    assert (found.templates["cpu"].lacking, found.templates["cpu"].limit) == (0, limit)
    assert made(planned(demand(jobs(80)), pilots=several(14, PilotState.STARTING, age=20))) == {}
    assert made(planned(demand(jobs(66)), pilots=several(14, PilotState.BUSY, busy_seconds=20))) == {"cpu": 12}
    assert made(planned(demand(jobs(66)), pilots=several(14, PilotState.BUSY, busy_seconds=600))) == {"cpu": 66}, "long"


def test_other_scalers_are_told_of_pilots_with_jobs_and_of_those_that_jobs_need() -> None:
    exist = [
        *several(3, PilotState.BUSY, busy_seconds=6000),
        *several(4, PilotState.IDLE),
        *several(1, PilotState.RETIRING),
        *several(2, PilotState.FAILED),
    ]

    def wanted(idle: int, least: int = 0) -> int:
        only_counts = template(max_pilots=0, min_pilots=least)
        return planned(demand(jobs(idle)), only_counts, pilots=exist).templates["cpu"].wanted

    assert wanted(0) == 4, "three busy, one retiring"
    assert wanted(1) == 5
    assert wanted(6) == 10, "two are missing"
    assert wanted(0, least=6) == 7, "six, and one that retires"


def test_jobs_of_several_users_share_the_pilots_that_are_missing() -> None:
    waiting = demand(*(jobs(1, user=f"user{number}") for number in range(8)))
    for most, made_now in ((0, 0), (1, 1), (100, 2)):
        one = planned(waiting, template("cpu", BIG, max_pilots=most)).templates["cpu"]
        assert (one.create, one.wanted) == (made_now, 2), "four jobs in each"


def test_groups_that_differ_in_nothing_that_counts_are_one() -> None:
    assert made(planned(demand(*(jobs(1) for _ in range(3))))) == {"cpu": 3}


def test_pilots_that_cannot_start_are_kept_as_long_as_jobs_are_idle() -> None:
    stuck = several(4, PilotState.PENDING, age=200, trouble="Unschedulable: no CPU", trouble_since=NOW - 190)
    closed = {"cpu": TemplateClosure(1, NOW + 30, "no room", NOW - 100)}
    for idle, deleted in ((0, 4), (1, 3), (4, 0), (9, 0)):
        found = planned(demand(jobs(idle)), pilots=stuck, closures=closed).templates["cpu"]
        assert (found.create, len(found.delete)) == (0, deleted)
    short = [*stuck, *several(4, PilotState.BUSY, ended_jobs=10, busy_seconds=400)]
    assert len(planned(demand(jobs(3)), pilots=short, closures=closed).templates["cpu"].delete) == 1, "soon taken"


def test_pilots_that_take_long_to_start_do_not_hold_up_the_others() -> None:
    assert made(planned(demand(jobs(80)), pilots=several(14, PilotState.PENDING, age=61))) == {"cpu": 14}


def test_room_beside_a_running_job_is_used_before_a_pilot_is_made() -> None:
    half = pilot(PilotState.BUSY, room=(SlotSpace(0, Resources(4, 4096, 2**22), 3),))
    found = planned(demand(jobs(5)), template("cpu", BIG), pilots=[half])
    assert made(found) == {"cpu": 1}, "three jobs there, for want of containers, and two in a new one"


def test_a_pilot_with_several_containers_takes_as_many_jobs_as_fit() -> None:
    large = jobs(4, wanted=Resources(4, 1024, 1024))
    assert made(planned(demand(large), template("cpu", BIG))) == {"cpu": 2}, "two of four CPUs each"
    assert made(planned(demand(jobs(8)), template("cpu", BIG))) == {"cpu": 2}, "four containers each"


def test_jobs_go_into_slots_of_the_kind_that_matches() -> None:
    kinds = (SlotKind(2, ONE, 1), SlotKind(1, Resources(1, 1024, 2**20, 1), 1))
    gpu = jobs(2, wanted=Resources(1, 512, 1024, 1), kinds=(1,))
    assert made(planned(demand(gpu, jobs(4, user="bob")), template("cpu", *kinds))) == {"cpu": 2}


def test_the_template_of_higher_priority_comes_first_and_the_other_when_it_is_full() -> None:
    templates = template("cheap", priority=5, max_pilots=2), template("dear")
    assert made(planned(demand(jobs(5, "cheap", "dear")), *templates)) == {"cheap": 2, "dear": 3}


@pytest.mark.parametrize(
    ("limits", "pilots", "create", "words"),
    [
        ({"max_pilots": 4}, several(3, PilotState.BUSY), 1, "max-pilots (4) is reached"),
        ({"max_pending": 2}, several(1, PilotState.FAILING), 1, "max-pending (2) is reached"),
        ({"max_new_per_minute": 3}, [], 3, "max-new-per-minute (3) is reached"),
    ],
)
def test_a_limit_is_kept_and_told(limits: dict[str, Any], pilots: list[Pilot], create: int, words: str) -> None:
    found = planned(demand(jobs(20)), template(**limits), pilots=pilots).templates["cpu"]
    assert (found.create, found.lacking, found.limit) == (create, 20 - create, words)


def test_each_template_that_a_limit_keeps_from_taking_jobs_says_so() -> None:
    found = planned(demand(jobs(9, "a", "b")), template("a", max_pilots=1), template("b", max_pilots=2)).templates
    assert (found["a"].create, found["a"].lacking, found["a"].limit) == (1, 6, "max-pilots (1) is reached")
    assert (found["b"].create, found["b"].lacking, found["b"].limit) == (2, 0, "max-pilots (2) is reached")


def test_pilots_of_the_same_minute_count_for_the_rate() -> None:
    recent = [pilot(PilotState.BUSY, name=f"cpu-{scaling.minute(NOW)}-{place:03d}") for place in range(2)]
    assert made(planned(demand(jobs(9)), template(max_new_per_minute=3), pilots=recent)) == {"cpu": 1}


def test_users_share_what_the_limits_allow() -> None:
    found = planned(
        demand(jobs(1000, user="alice"), jobs(3, user="bob"), jobs(50, user="carol")),
        template(max_pilots=9),
    )
    assert made(found) == {"cpu": 9}
    assert found.templates["cpu"].lacking == 1000 + 3 + 50 - 9


def test_a_user_with_many_groups_of_jobs_has_no_larger_share_of_what_exists() -> None:
    many = [jobs(1, user="alice", wanted=Resources(1, 100 + number, 1024)) for number in range(50)]
    found = planned(
        demand(*many, jobs(2, "cpu", "other", user="bob")),
        template(),
        template("other"),
        pilots=several(4, PilotState.IDLE),
    )
    assert found.templates["other"].create == 0, "bob's jobs have room in two of the four"


def test_a_closed_template_makes_none_and_says_why() -> None:
    record = TemplateClosure(2, NOW + 40, "the pilot cpu-1 failed: no")
    found = planned(demand(jobs(3)), closures={"cpu": record}).templates["cpu"]
    assert (found.create, found.lacking) == (0, 3)
    assert found.limit == "closed until 08:00:40 UTC, because the pilot cpu-1 failed: no"


def test_after_a_failure_one_pilot_is_tried() -> None:
    record = TemplateClosure(2, NOW - 1, "x")
    assert made(planned(demand(jobs(3)), closures={"cpu": record})) == {"cpu": 1}
    assert made(planned(demand(jobs(3)), closures={"cpu": record}, pilots=several(1, PilotState.STARTING))) == {}


def test_the_least_number_of_pilots_is_kept() -> None:
    pilots = [*several(1, PilotState.IDLE), *several(2, PilotState.RETIRING)]
    assert made(planned(demand(), template(min_pilots=3), pilots=pilots)) == {"cpu": 2}
    assert made(planned(demand(jobs(5)), template(min_pilots=3), pilots=pilots)) == {"cpu": 4}


# --- What is deleted ---


def deleted(found: TurnPlan) -> list[Pilot]:
    """The pilots that it deletes."""
    return [one for one, _ in found.templates["cpu"].delete]


def test_pending_pilots_that_no_job_needs_go_the_newest_first() -> None:
    pilots = several(3, PilotState.PENDING, age=100)
    assert deleted(planned(demand(jobs(1)), pilots=pilots)) == pilots[:2]


def test_a_young_pending_pilot_stays_since_jobs_come_and_go() -> None:
    assert deleted(planned(demand(), pilots=several(2, PilotState.PENDING, age=20))) == []


@pytest.mark.parametrize("state", [PilotState.STARTING, PilotState.IDLE, PilotState.BUSY, PilotState.RETIRING])
def test_a_pilot_that_has_begun_is_never_deleted(state: PilotState) -> None:
    assert deleted(planned(demand(), pilots=several(3, state, age=10_000))) == []


def test_nothing_is_surplus_while_an_access_point_does_not_answer() -> None:
    pilots = several(3, PilotState.PENDING, age=100)
    assert deleted(planned(demand(missing=("the access point ap does not answer",)), pilots=pilots)) == []


def test_the_least_number_of_pilots_is_not_surplus() -> None:
    pilots = several(3, PilotState.PENDING, age=100)
    assert deleted(planned(demand(), template(min_pilots=2), pilots=pilots)) == pilots[:1]


def test_pilots_that_ended_well_go_after_a_while_and_of_failed_ones_the_last_three_stay() -> None:
    ended = pilot(PilotState.SUCCEEDED, trouble_since=NOW - 301)
    fresh = pilot(PilotState.SUCCEEDED, trouble_since=NOW - 10)
    failed = [pilot(PilotState.FAILED, trouble_since=NOW - age) for age in (5, 10, 15, 20, 90_000)]
    assert deleted(planned(demand(), pilots=[ended, fresh, *failed])) == [*failed[3:], ended]


def test_a_pilot_that_ends_again_and_again_makes_room_for_another_trial() -> None:
    old = pilot(PilotState.FAILING, age=2000, failing_since=NOW - 601, trouble="no pool")
    new = pilot(PilotState.FAILING, age=2000, failing_since=NOW - 599, trouble="no pool")
    assert deleted(planned(demand(), pilots=[old, new])) == [old]


def test_a_pilot_that_does_not_start_goes_when_its_template_has_changed() -> None:
    stuck = pilot(PilotState.PENDING, trouble="ImagePullBackOff", template_version="old")
    failing = pilot(PilotState.FAILING, trouble="no pool", template_version="old")
    fine = pilot(PilotState.PENDING, template_version="old")
    assert deleted(planned(demand(jobs(2)), pilots=[stuck, failing, fine])) == [stuck, failing]


# --- Properties ---


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Demand, list[Template], list[Pilot]]:
    """Demand, templates and pilots at random."""
    names = ["cpu", "gpu", "big"][: draw(st.integers(1, 3))]
    small = st.integers(0, 8)
    templates = [
        template(
            name,
            SlotKind(draw(st.integers(1, 2)), Resources(draw(st.integers(1, 4)), 1024, 2**20), draw(st.integers(1, 3))),
            max_pilots=draw(small) + 3,
            max_pending=draw(small) + 1,
            max_new_per_minute=draw(small) + 1,
            min_pilots=draw(st.integers(0, 3)),
            priority=draw(small),
        )
        for name in names
    ]
    groups = [
        jobs(
            draw(st.integers(1, 30)),
            *draw(st.lists(st.sampled_from(names), min_size=1, unique=True)),
            user=user,
            wanted=Resources(draw(st.integers(1, 5)), 100, 1024),
        )
        for user in draw(st.lists(st.sampled_from(["alice", "bob", "carol"]), max_size=6))
    ]
    pilots = [
        pilot(draw(st.sampled_from(list(PilotState))), draw(st.sampled_from(names)), draw(st.integers(0, 300)))
        for _ in range(draw(small))
    ]
    return demand(*groups), templates, pilots


@drawn(150, world=worlds())
def test_limits_hold_and_no_more_pilots_are_made_than_there_are_jobs(
    world: tuple[Demand, list[Template], list[Pilot]],
) -> None:
    wanted, templates, pilots = world
    found = plan(wanted, templates, pilots, {}, NOW)
    for one in found.templates.values():
        limits, exist = (
            one.template.limits,
            Counter(each.state for each in pilots if each.template == one.template.name),
        )
        alive = sum(exist.values()) - exist[PilotState.FAILED] - exist[PilotState.SUCCEEDED]
        assert one.create <= max(limits.max_pilots - alive, 0)
        assert one.create <= limits.max_new_per_minute
        pending = exist[PilotState.PENDING] + exist[PilotState.STARTING] + exist[PilotState.FAILING]
        assert one.create <= max(limits.max_pending - pending, 0)
        assert not any(each.state in (PilotState.BUSY, PilotState.IDLE, PilotState.STARTING) for each, _ in one.delete)
    least = sum(one.template.limits.min_pilots for one in found.templates.values())
    assert sum(made(found).values()) <= sum(group.idle for group in wanted.groups) + least


@pytest.mark.slow
@drawn(150, world=worlds())
def test_turns_in_the_same_minute_come_to_rest_with_no_more_pilots_than_jobs(
    world: tuple[Demand, list[Template], list[Pilot]],
) -> None:
    """Jobs may take other slots in a later turn than were meant for them, so that a second turn may make some more."""
    wanted, templates, pilots = world
    total = Counter[str]()
    for _ in range(10):
        found = plan(wanted, templates, pilots, {}, NOW)
        gone = {each.uid for one in found.templates.values() for each, _ in one.delete}
        new = [
            pilot(PilotState.PENDING, name, age=0, name=f"{name}-{scaling.minute(NOW)}-{total[name] + place:03d}")
            for name, number in made(found).items()
            for place in range(number)
        ]
        total.update(made(found))
        pilots = [each for each in pilots if each.uid not in gone] + new
    assert not new
    least = sum(one.limits.min_pilots for one in templates)
    assert total.total() <= sum(group.idle for group in wanted.groups) + least


def test_pods_of_another_scaler_are_left_to_it() -> None:
    pilots = several(3, PilotState.PENDING, age=100, is_ours=False)
    ended = pilot(PilotState.SUCCEEDED, trouble_since=NOW - 400, is_ours=False)
    assert deleted(planned(demand(), pilots=[*pilots, ended])) == []


def test_no_job_is_left_to_pilots_that_are_stuck_where_another_template_is_open() -> None:
    stuck = several(2, PilotState.PENDING, "a", age=100, trouble="ErrImagePull", trouble_since=NOW - 90)
    record = {"a": TemplateClosure(1, NOW + 20, "x", NOW - 5)}
    found = planned(demand(jobs(2, "a", "b")), template("a"), template("b"), pilots=stuck, closures=record)
    assert made(found) == {"b": 2}
