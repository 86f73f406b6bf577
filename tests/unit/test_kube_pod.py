"""Reading a container out of a pod."""

from datetime import UTC, datetime
from typing import Any

import pytest

from k8spilot.kube.pod import (
    IMAGE_REASONS,
    START_REASONS,
    ContainerView,
    container,
    groups_of,
    is_disturbed,
    runtime,
    start_of_life,
)


def pod(status: dict[str, Any] | None) -> dict[str, Any]:
    statuses = [{"name": "install"}] if status is None else [{"name": "install"}, {"name": "payload", **status}]
    return {
        "spec": {"initContainers": [{"name": "install"}, {"name": "payload", "image": "wanted"}], "containers": []},
        "status": {"initContainerStatuses": statuses},
    }


def view(status: dict[str, Any] | None) -> ContainerView:
    found = container(pod(status), "payload")
    assert found is not None
    return found


def test_a_pod_without_the_container_has_none() -> None:
    assert container({"spec": {"containers": [{"name": "pilot"}]}}, "payload") is None
    assert container({}, "payload") is None


def test_the_groups_of_a_container_are_those_that_it_and_its_pod_ask_for() -> None:
    def groups(own: dict[str, Any], **of_pod: Any) -> set[int]:
        found = pod(None)
        found["spec"]["securityContext"] = of_pod
        found["spec"]["initContainers"][1]["securityContext"] = own
        return set(groups_of(found, "payload"))

    assert groups_of(pod(None), "payload") == set()
    assert groups({"runAsGroup": 5}, runAsGroup=6, fsGroup=7, supplementalGroups=[8, 9]) == {5, 7, 8, 9}
    assert groups({}, runAsGroup=6) == {6}


def test_before_there_is_a_status_only_the_spec_is_known() -> None:
    assert view(None) == ContainerView(wanted="wanted")
    assert container({"spec": pod(None)["spec"]}, "payload") == ContainerView(wanted="wanted")


def test_the_runtime_is_named_by_any_container_that_has_been_started() -> None:
    assert (runtime({}), runtime(pod(None)), runtime(pod({"containerID": ""}))) == ("", "", "")
    assert runtime(pod({"containerID": "cri-o://1"})) == "cri-o"
    found = pod({"containerID": None})
    found["status"]["containerStatuses"] = [{"name": "pilot", "containerID": "containerd://1"}]
    assert runtime(found) == "containerd"


def test_a_running_container() -> None:
    found = view(
        {
            "image": "seen",
            "imageID": "r/a@sha256:1",
            "containerID": "containerd://1",
            "restartCount": 3,
            "state": {"running": {"startedAt": "now"}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "containerd://0"}},
        }
    )
    assert found.running
    assert (found.image, found.image_id, found.container_id, found.restarts) == (
        "seen",
        "r/a@sha256:1",
        "containerd://1",
        3,
    )
    assert found.ended == {"exitCode": 1, "containerID": "containerd://0"}
    assert found.refused is None


def test_the_last_end_counts_when_the_container_has_ended_for_good() -> None:
    found = view(
        {
            "state": {"terminated": {"exitCode": 2, "containerID": "containerd://1"}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "containerd://0"}},
        }
    )
    assert not found.running
    assert found.ended is not None
    assert found.ended["exitCode"] == 2


@pytest.mark.parametrize("reason", sorted(IMAGE_REASONS | START_REASONS))
def test_what_the_kubelet_cannot_start_is_refused_in_its_words(reason: str) -> None:
    assert view({"state": {"waiting": {"reason": reason, "message": "why"}}}).refused == f"{reason}: why"
    assert view({"state": {"waiting": {"reason": reason}}}).refused == reason


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "CrashLoopBackOff", ""])
def test_what_may_yet_start_is_not_refused(reason: str) -> None:
    assert view({"state": {"waiting": {"reason": reason}}}).refused is None


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_a_life_counts_from_the_pods_start_where_a_pilot_that_has_ended_stays_ended(policy: str) -> None:
    found = {"spec": {"restartPolicy": policy}, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    assert start_of_life(found) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("spec", [{"restartPolicy": "Always"}, {}])
def test_a_life_counts_from_the_containers_start_where_the_kubelet_always_starts_it_again(spec: dict[str, Any]) -> None:
    found = {"spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    age = datetime.now(UTC) - datetime.fromisoformat(start_of_life(found))
    assert 0 <= age.total_seconds() < 60


@pytest.mark.parametrize(
    ("pod", "disturbed"),
    [
        ({}, False),
        ({"metadata": {}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
        ({"status": {"reason": "Evicted"}}, True),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}, True),
    ],
)
def test_a_pod_that_the_cluster_ends_is_told_from_one_that_it_leaves_alone(
    pod: dict[str, Any], disturbed: bool
) -> None:
    assert is_disturbed(pod) is disturbed
