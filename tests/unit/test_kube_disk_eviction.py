"""A job under which a pod was evicted for disk is known by the kubelet's words, and no other job is."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from k8spilot.kube.disk_eviction import words_of
from k8spilot.model.disk import LastRun

TOTAL = "Pod ephemeral local storage usage exceeds the total limit of containers 300Mi. "
AT = 1_800_000_000
POD: dict[str, Any] = {
    "spec": {
        "initContainers": [{"name": "payload", "volumeMounts": [{"name": "tmp"}]}],
        "containers": [{"name": "pilot", "volumeMounts": [{"name": "condor-logs"}]}],
    },
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": TOTAL,
        "conditions": [
            {
                "type": "ContainersReady",
                "reason": "PodFailed",
                "status": "False",
                "lastTransitionTime": "2027-01-15T08:00:00Z",
            }
        ],
    },
}


def run(*, seconds: int | None = 3600, vacated: int = 30, is_first: bool = True) -> LastRun:
    """A run that had lasted so long when the pod was evicted."""
    return LastRun("Site.pilot", AT + vacated, None if seconds is None else AT - seconds, is_first)


def with_status(**changes: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    pod["status"].update(changes)
    return pod


@pytest.mark.parametrize(
    "words",
    [
        TOTAL,
        'Container payload exceeded its local ephemeral storage limit "4Gi". ',
        'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ',
    ],
)
def test_a_pod_that_used_more_than_its_own_limits_was_filled_by_its_job(words: str) -> None:
    assert words_of(with_status(message=words), "payload", run()) == words


@pytest.mark.parametrize(
    "pod",
    [
        with_status(message="The node was low on resource: ephemeral-storage. Threshold quantity: 1, available: 0. "),
        with_status(message='Container pilot exceeded its local ephemeral storage limit "1Gi". '),
        with_status(message='Usage of EmptyDir volume "condor-logs" exceeds the limit "1Gi". '),
        with_status(reason="Preempting"),
        with_status(conditions=[]),
        {"status": {"phase": "Running"}},
        {},
    ],
    ids=["node", "pilot", "logs", "preempted", "no time", "running", "nothing"],
)
def test_no_job_is_at_fault_for_another_end(pod: dict[str, Any]) -> None:
    assert words_of(pod, "payload", run()) == ""


def test_a_job_that_had_left_the_pod_before_is_not_at_fault() -> None:
    assert words_of(POD, "payload", run(vacated=-20)) == ""
    assert words_of(POD, "payload", run(vacated=-5)) == TOTAL  # as far as two clocks agree


@pytest.mark.parametrize("seconds", [5, 100, None])
def test_what_an_earlier_job_may_have_filled_holds_no_job_but_the_second_time(seconds: int | None) -> None:
    assert words_of(POD, "payload", run(seconds=seconds)) == ""
    assert words_of(POD, "payload", run(seconds=seconds, is_first=False)) == TOTAL
    assert words_of(POD, "payload", run(seconds=140)) == TOTAL


def test_what_a_container_has_written_is_of_its_own_job() -> None:
    words = 'Container payload exceeded its local ephemeral storage limit "4Gi". '
    assert words_of(with_status(message=words), "payload", run(seconds=5)) == words


SEVERAL = copy.deepcopy(POD)
SEVERAL["spec"]["initContainers"] = [
    {"name": f"payload-{number}", "volumeMounts": [{"name": "tmp"}]} for number in (1, 2, 13)
]


@pytest.mark.parametrize(
    ("words", "slot", "is_at_fault"),
    [
        ('Container payload-2 exceeded its local ephemeral storage limit "4Gi". ', "slot2", True),
        ('Container payload-2 exceeded its local ephemeral storage limit "4Gi". ', "slot1_2", True),
        ('Container payload-2 exceeded its local ephemeral storage limit "4Gi". ', "slot1", False),
        ('Container payload-13 exceeded its local ephemeral storage limit "4Gi". ', "slot3", False),
        ('Container payload-2 exceeded its local ephemeral storage limit "4Gi". ', "", False),
        (TOTAL, "slot2", False),
        ('Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ', "slot2", False),
    ],
)
def test_of_several_jobs_the_one_is_at_fault_whose_container_is_named(words: str, slot: str, is_at_fault: bool) -> None:
    pod = copy.deepcopy(SEVERAL)
    pod["status"]["message"] = words
    assert words_of(pod, "payload", replace(run(), slot=slot)) == (words if is_at_fault else "")
