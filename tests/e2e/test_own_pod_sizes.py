"""The component own-pod and a partitionable slot: a token is worth images and sizes of the own payload containers."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.settings import PILOT_NAMESPACE
from tests.e2e.partitionable import RESOURCES
from tests.e2e.pool import Pool, result
from tests.e2e.thief import JSON_PATCH, Answer, Thief, guarded

CONTAINERS = 2
SIZE = {"op": "replace", "path": "/spec/initContainers/1/resources", "value": RESOURCES}


@pytest.fixture(scope="module")
def sized(lab: Lab, pod: str, owner: str) -> Iterator[tuple[Pool, Thief]]:
    """A pilot with a partitionable slot under the policies, and who has its token."""
    name, account = f"e2e-{owner}-own-sizes", f"k8spilot-{owner}-sizes"
    with guarded(lab, name, account, SIZE, slots=CONTAINERS) as thief, ExitStack() as cleanup:
        jobs.wait_in_pool(lab, name)
        yield Pool(lab, pod, cleanup).of_pod(name), thief


def resized(pool: Pool, thief: Thief, *operations: dict[str, Any]) -> Answer:
    """The answer to a change of the own pod's sizes, which is not done."""
    return thief.ask("PATCH", f"pods/{pool.pod}/resize?dryRun=All", list(operations), JSON_PATCH)


def place_of(pool: Pool, name: str) -> str:
    """Return the JSON pointer to a native sidecar in the pod."""
    pod = json.loads(pool.lab.kubectl("get", "pod", pool.pod, "-n", PILOT_NAMESPACE, "-o", "json"))
    names = [one["name"] for one in pod["spec"]["initContainers"]]
    return f"/spec/initContainers/{names.index(name)}"


def test_slots_of_equal_size_stay_as_large_as_they_are(lab: Lab, owner: str) -> None:
    """Such a pod has no resources of its own, which would limit its containers."""
    name, account = f"e2e-{owner}-own-equal", f"k8spilot-{owner}-equal"
    with guarded(lab, name, account, SIZE, slots=CONTAINERS, shares=pilot.Shares(equal=True)) as thief:
        place = "/spec/initContainers/2/resources/limits"
        for kind, value in (("memory", "20Gi"), ("cpu", "32")):
            change = {"op": "replace", "path": f"{place}/{kind}", "value": value}
            assert thief.ask("PATCH", f"pods/{name}/resize?dryRun=All", [change], JSON_PATCH).denied, kind


def test_a_pilot_resizes_its_payload_containers_with_it(sized: tuple[Pool, Thief]) -> None:
    pool, thief = sized
    assert result(pool.shell("echo fine", request_cpus="2", request_memory="512M")).text == "fine\n"
    more = {"op": "replace", "path": f"{place_of(pool, 'payload-2')}/resources/limits/memory", "value": "40Mi"}
    assert resized(pool, thief, more).status == 200


def test_the_size_of_nothing_else_can_be_changed(sized: tuple[Pool, Thief]) -> None:
    pool, thief = sized
    own = {"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "600Mi"}
    assert resized(pool, thief, own).denied
    whole = {"op": "replace", "path": "/spec/resources/limits/memory", "value": "20Gi"}
    assert resized(pool, thief, whole).status != 200


def test_the_payload_containers_cannot_request_more_than_the_pod(sized: tuple[Pool, Thief]) -> None:
    """A limit alone may be higher: the limit of the pod's own cgroup stays."""
    pool, thief = sized
    place = f"{place_of(pool, 'payload-1')}/resources"
    both = [{"op": "replace", "path": f"{place}/{kind}/memory", "value": "20Gi"} for kind in ("limits", "requests")]
    answer = resized(pool, thief, *both)
    assert answer.status == 422, answer
    assert "aggregate container requests" in answer.text
