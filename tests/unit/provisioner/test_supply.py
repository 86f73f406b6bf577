"""Pilots: the facts of their pods, joined with their slots in the pool."""

from datetime import UTC, datetime
from typing import Any

import pytest

from k8spilot.provisioner.planning.model import Pilot, PilotSlot, PilotState, SlotKind, SlotSpace
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.supply import CollectorMemory, History, join, pod_facts
from tests.unit.provisioner.world import NOW, ONE, pilot, several, template

EARLY, LATE = "2026-11-26T10:00:00Z", "2026-11-26T10:05:00Z"
RUNNING = {"running": {"startedAt": LATE}}


def pod(
    phase: str = "Pending", *, conditions: list[dict[str, str]] | None = None, message: str = "", **states: Any
) -> dict[str, Any]:
    """A pod of the template cpu; `states` are those of its containers, with more fields of their statuses."""
    statuses = [{"name": name, "state": {}, **more} for name, more in states.items()]
    return {
        "metadata": {
            "name": "cpu-1", "uid": "u1", "resourceVersion": "5", "creationTimestamp": EARLY,
            "labels": {"k8spilot/template": "cpu"}, "annotations": {"k8spilot/template-version": "v"},
        },
        "status": {"phase": phase, "conditions": conditions or [], "message": message, "containerStatuses": statuses},
    }  # fmt: skip


def waits(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """A container that waits."""
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


def slot(**more: Any) -> PilotSlot:
    """An idle slot of that pod."""
    values = {
        "pod_uid": "u1",
        "has_gpus": False,
        "running": 0,
        "is_draining": False,
        "to_retire": NOW + 1000,
        "room": ONE,
    }
    return PilotSlot(**{**values, "is_black_hole": False, **more})


def joined(
    found: dict[str, Any],
    *slots: PilotSlot,
    seen: dict[str, float] | None = None,
    kinds: tuple[SlotKind, ...] = (),
    began: float = 0.0,
) -> Pilot:
    """The pilot."""
    (one,) = join(
        [pod_facts(found)],
        {"cpu": template("cpu", *kinds)},
        slots,
        History(began, seen if seen is not None else {}),
        NOW,
    )
    return one


def test_the_facts_of_a_pod_are_read() -> None:
    one = joined(pod())
    assert (one.name, one.uid, one.resource_version, one.template, one.template_version) == (
        "cpu-1",
        "u1",
        "5",
        "cpu",
        "v",
    )
    assert one.state is PilotState.PENDING
    assert one.room == ()


@pytest.mark.parametrize(
    ("found", "slots", "state"),
    [
        (pod(pilot=waits("PodInitializing")), [], PilotState.PENDING),
        (pod("Running", pilot={"state": RUNNING}), [], PilotState.STARTING),
        (pod("Running", pilot=waits("CrashLoopBackOff", restartCount=1)), [], PilotState.STARTING),
        (pod("Running", pilot=waits("CrashLoopBackOff", restartCount=3)), [], PilotState.FAILING),
        (pod("Running", pilot={"state": RUNNING}), [slot()], PilotState.IDLE),
        (pod("Running", pilot={"state": RUNNING}), [slot(), slot(running=1)], PilotState.BUSY),
        (pod("Running", pilot={"state": RUNNING}), [slot(to_retire=NOW - 1)], PilotState.RETIRING),
        (pod("Running", pilot={"state": RUNNING}), [slot(is_draining=True, running=1)], PilotState.RETIRING),
        (pod("Failed"), [slot()], PilotState.FAILED),
        (pod("Succeeded"), [], PilotState.SUCCEEDED),
    ],
)
def test_the_state_comes_from_the_pod_and_the_pool(
    found: dict[str, Any], slots: list[PilotSlot], state: PilotState
) -> None:
    assert joined(found, *slots).state is state


def test_a_pod_that_is_being_deleted_retires() -> None:
    found = pod("Running", pilot={"state": RUNNING})
    found["metadata"]["deletionTimestamp"] = LATE
    assert joined(found, slot()).state is PilotState.RETIRING


def test_a_pilot_that_has_left_the_pool_is_lost() -> None:
    seen: dict[str, float] = {}
    found = pod("Running", pilot={"state": RUNNING})
    assert joined(found, slot(), seen=seen).state is PilotState.IDLE
    assert joined(found, seen=seen).state is PilotState.LOST


def test_the_room_of_a_partitionable_slot_is_what_is_left_and_as_many_jobs_as_containers() -> None:
    kind = SlotKind(1, Resources(8, 8192, 2**20), 4)
    left = Resources(5, 100, 1000)
    assert joined(pod("Running"), slot(running=3, room=left), kinds=(kind,)).room == (SlotSpace(0, left, 1),)
    assert joined(pod("Running"), slot(running=4, room=left), kinds=(kind,)).room == ()


def test_slots_with_gpus_are_of_the_kind_with_gpus() -> None:
    gpu = Resources(1, 1024, 2**20, 1)
    kinds = (SlotKind(1, ONE, 1), SlotKind(1, gpu, 1))
    assert joined(pod("Running"), slot(has_gpus=True, room=gpu), kinds=kinds).room == (SlotSpace(1, gpu, 1),)


# --- Troubles ---

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes\nfit"}
CRASHED = {"restartCount": 2, "lastState": {"terminated": {"message": "no token", "finishedAt": LATE}}}
ENDED = {"state": {"terminated": {"message": "CONDOR_HOST must be set", "finishedAt": LATE}}}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pod(conditions=[UNSCHEDULABLE]), "Unschedulable: 0/1 nodes fit"),
        (pod(install=waits("ErrImagePull", "not found")), "the container install waits: ErrImagePull: not found"),
        (pod(payload=waits("ImagePullBackOff", "x")), "the container payload waits: ImagePullBackOff: x"),
        (
            pod("Running", pilot=waits("CrashLoopBackOff", "back-off", **CRASHED)),
            "the container pilot waits: CrashLoopBackOff: no token",
        ),
        (pod("Failed", message="The node was low on memory"), "The node was low on memory"),
        (pod("Failed", pilot=ENDED), "CONDOR_HOST must be set"),
        (pod("Failed"), "it says no reason"),
    ],
)
def test_a_trouble_is_told_in_one_line(found: dict[str, Any], words: str) -> None:
    assert joined(found).trouble == words


def test_images_of_jobs_are_no_trouble_of_the_pilot() -> None:
    assert joined(pod("Running", pilot={"state": RUNNING}, payload=waits("ErrImagePull", "job's"))).trouble == ""


def test_a_pilot_that_kubernetes_ended_or_that_worked_for_long_says_nothing_of_its_template() -> None:
    end = {"state": {"terminated": {"startedAt": EARLY, "finishedAt": LATE}}}
    assert not joined(pod("Failed", pilot=end)).has_worked
    longer = {"state": {"terminated": {"startedAt": EARLY, "finishedAt": "2026-11-26T12:00:00Z"}}}
    assert joined(pod("Failed", pilot=longer)).has_worked
    preempted = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    assert joined(pod("Failed", conditions=preempted, pilot=end)).has_worked


def test_a_collector_that_forgets_most_pilots_is_not_believed_for_some_minutes() -> None:
    memory = CollectorMemory()
    lost = [pilot(PilotState.LOST) for _ in range(3)]
    assert memory.fault([*lost, *several(4, PilotState.IDLE)], NOW) == ""
    assert "no longer has the slots of 3 of 5 pilots" in memory.fault([*lost, *several(2, PilotState.IDLE)], NOW)
    assert memory.fault([*lost, *several(2, PilotState.IDLE)], NOW + 299)
    assert memory.fault([*lost, *several(2, PilotState.IDLE)], NOW + 301) == ""
    assert memory.fault([pilot(PilotState.LOST)], NOW) == "", "one pilot may lose its node"


def test_a_pod_of_another_scaler_counts_and_is_not_ours() -> None:
    """Pods that `kubectl delete --cascade=orphan` has left are ours, without an owner."""
    found = pod()
    assert joined(found).is_ours
    del found["metadata"]["annotations"]
    assert not joined(found).is_ours


def test_a_pilot_is_awaited_from_the_time_at_which_it_got_its_node() -> None:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": EARLY}]
    began = datetime.fromisoformat(EARLY).timestamp()
    assert joined(pod("Pending", conditions=conditions)).awaited_since == began
    waiting = joined(pod("Pending", conditions=conditions, pilot=waits("ErrImagePull")))
    assert waiting.trouble_since == began, "and not from its creation, after which it may have waited for a node"
    again = joined(pod("Running", pilot=running(10)), seen={"u1": NOW - 100})
    assert again.awaited_since == NOW - 10, "one that was in the pool has the same time again"


def test_a_pilot_that_ends_again_and_again_does_so_from_the_first_look() -> None:
    found, history = pod("Running", pilot=waits("CrashLoopBackOff", restartCount=5)), History()
    looks = [next(iter(join([pod_facts(found)], {}, [], history, NOW + after))) for after in (0, 30)]
    assert [(one.state, one.failing_since) for one in looks] == [(PilotState.FAILING, NOW)] * 2
    history.keep(set())
    assert history.failing == {}


def test_a_pilot_that_had_a_job_once_is_remembered() -> None:
    history = History()
    templates = {"cpu": template("cpu")}
    (busy,) = join([pod_facts(pod())], templates, [slot(running=1)], history, NOW)
    (idle,) = join([pod_facts(pod())], templates, [slot()], history, NOW)
    assert busy.had_job
    assert idle.had_job
    history.keep(set())
    (fresh,) = join([pod_facts(pod())], templates, [slot()], history, NOW)
    assert not fresh.had_job


def test_a_claim_that_has_no_job_yet_is_room_for_the_job_that_it_takes() -> None:
    """Its access point still counts that job as idle; another pilot for it would come in vain."""
    assert joined(pod(), slot(running=1)).room == ()
    assert joined(pod(), slot(running=1, idle_claims=1)).room == (SlotSpace(0, ONE, 1),)


def running(age: float) -> dict[str, Any]:
    """A container that has run for so many seconds."""
    return {"state": {"running": {"startedAt": datetime.fromtimestamp(NOW - age, UTC).isoformat()}}}


def test_a_pilot_whose_container_starts_again_is_starting_and_not_lost() -> None:
    seen = {"u1": NOW - 100}
    assert joined(pod("Running", pilot=running(200)), seen=seen).state is PilotState.LOST
    assert joined(pod("Running", pilot=running(10)), seen=seen).state is PilotState.STARTING
    again = pod("Running", pilot=waits("CrashLoopBackOff", restartCount=5))
    assert joined(again, seen=seen).state is PilotState.STARTING, "it has worked, and is not deleted for that"


def test_what_a_pilot_has_done_before_the_provisioner_began_is_not_held_against_it() -> None:
    ended = pod("Succeeded", pilot={"state": {"terminated": {"startedAt": EARLY, "finishedAt": LATE}}})
    began = datetime.fromisoformat(LATE).timestamp()
    assert (joined(ended).had_job, joined(ended).has_worked) == (False, False)
    assert (joined(ended, began=began).had_job, joined(ended, began=began).has_worked) == (True, True)


@pytest.mark.parametrize(("seconds", "state"), [(60, PilotState.STARTING), (180, PilotState.LOST)])
def test_a_pilot_that_runs_since_long_before_the_provisioner_began_was_in_the_pool(
    seconds: int, state: PilotState
) -> None:
    began = datetime.fromisoformat(LATE).timestamp() + seconds
    assert joined(pod("Running", pilot={"state": RUNNING}), began=began).state is state
