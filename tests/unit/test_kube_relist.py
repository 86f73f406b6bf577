"""The resize that makes the kubelet look at once: a thousandth of a CPU, to and fro, and no effect on jobs."""

from typing import Any

import pytest

from k8spilot.kube.relist import operations, why_not

Json = dict[str, Any]


def pod(resources: Json, **more: Any) -> Json:
    """A pod whose payload container has these resources."""
    payload = {"name": "payload", "resources": resources, **more}
    return {"metadata": {"uid": "u"}, "spec": {"initContainers": [{"name": "install"}, payload]}}


def changed(resources: Json) -> Json:
    """The new cpu values in the JSON patch: of limits, of requests."""
    return {
        one["path"].split("/")[-2]: one["value"]
        for one in operations(pod(resources), "payload")
        if one["op"] == "replace"
    }


@pytest.mark.parametrize(
    ("now", "then"),
    [("1", "999m"), ("999m", "1000m"), ("1500m", "1499m"), ("1499m", "1500m"), ("0.5", "499m"), (2, "1999m")],
)
def test_the_limit_changes_by_a_thousandth_and_back(now: object, then: str) -> None:
    assert changed({"limits": {"cpu": now}, "requests": {"cpu": "100m"}}) == {"limits": then}


def test_a_request_that_equals_its_limit_stays_equal() -> None:
    assert changed({"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}) == {"limits": "3999m", "requests": "3999m"}


def test_without_a_limit_the_request_changes() -> None:
    assert changed({"requests": {"cpu": "4", "memory": "1Gi"}}) == {"requests": "3999m"}


def test_a_limit_whose_request_is_the_pods_changes_alone() -> None:
    assert changed({"limits": {"cpu": "4"}}) == {"limits": "3999m"}


def test_a_late_change_finds_other_values_and_has_no_effect() -> None:
    tests = [one for one in operations(pod({"limits": {"cpu": "1"}}), "payload") if one["op"] == "test"]
    assert tests == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/spec/initContainers/1/resources/limits/cpu", "value": "1"},
    ]


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        ({"name": "payload"}, "no limit and no request of cpu"),
        ({"name": "payload", "resources": {"requests": {"cpu": "0"}}}, "no limit and no request of cpu"),
        (
            {"name": "payload", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "999m"}}},
            "are not equal, but nearly so",
        ),
        ({"name": "payload", "resources": {"limits": {"memory": "1Gi"}}}, "no limit and no request of cpu"),
        (
            {
                "name": "payload",
                "resources": {"limits": {"cpu": "1"}},
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
            },
            "restarts it when its cpu changes",
        ),
    ],
)
def test_containers_whose_cpu_cannot_change_are_told(container: Json, reason: str) -> None:
    assert reason in why_not(container)


def test_the_defaults_of_the_api_server_are_no_hindrance() -> None:
    policies = [{"resourceName": kind, "restartPolicy": "NotRequired"} for kind in ("cpu", "memory")]
    assert why_not({"name": "payload", "resources": {"limits": {"cpu": "1"}}, "resizePolicy": policies}) == ""
