"""Attributes by which the slot describes itself, and jobs that prefer a slot by them."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, result, until
from tests.e2e.test_slot import say


@pytest.fixture(scope="module")
def pods(lab: Lab, owner: str) -> Iterator[tuple[str, str]]:
    """Two pilots that may read their node."""
    names = (f"e2e-{owner}-rank-1", f"e2e-{owner}-rank-2")
    for name in names:
        pilot.deploy(lab, name, {"K8SPILOT_CLUSTER": "lab"}, {"components": ["node-images"]})
    for name in names:
        jobs.wait_in_pool(lab, name)
    yield names
    for name in names:
        pilot.discard(lab, name)
    right = "k8spilot-node-images"
    lab.kubectl("delete", f"clusterrolebinding/{right}", f"clusterrole/{right}", "--ignore-not-found")


@pytest.fixture(scope="module")
def pod(pods: tuple[str, str]) -> str:
    """One of them, for what asks for one."""
    return pods[0]


def ad(pool: Pool, pod: str) -> dict[str, Any]:
    """A slot's ad as users see it."""
    query = ["condor_status", "-constraint", f'K8SPodName == "{pod}"', "-json"]
    found: list[dict[str, Any]] = json.loads(pool.lab.access_point("alice", query) or "[]")
    return found[0] if found else {}


def test_the_slot_tells_where_it_is_and_what_runs_there(pool: Pool) -> None:
    seen = ad(pool, pool.pod)
    node = json.loads(pool.lab.kubectl("get", "node", "-o", "json"))["items"][0]
    info = node["status"]["nodeInfo"]
    assert {name: seen.get(name) for name in seen if name in {
        "K8SNamespace", "K8SPodName", "K8SPhysicalHostName", "K8SClusterName", "K8SVersion", "K8SKubeletVersion",
        "Cpus", "Memory", "GLIDEIN_Site", "GLIDEIN_ResourceName",
    }} == {
        "K8SNamespace": PILOT_NAMESPACE,
        "K8SPodName": pool.pod,
        "K8SPhysicalHostName": node["metadata"]["name"],
        "K8SClusterName": "lab",
        "K8SVersion": info["kubeletVersion"],
        "K8SKubeletVersion": info["kubeletVersion"],
        "Cpus": 1,
        "Memory": 1024,
        "GLIDEIN_Site": "lab",
        "GLIDEIN_ResourceName": "lab",
    }  # fmt: skip
    assert seen["K8SContainerRuntime"] in info["containerRuntimeVersion"]
    assert seen["GLIDEIN_ToRetire"] < seen["GLIDEIN_ToDie"]


def test_a_slot_knows_the_images_of_its_node_and_those_that_it_has_bound(pool: Pool) -> None:
    node = json.loads(pool.lab.kubectl("get", "node", "-o", "json"))["items"][0]
    # The kubelet tells of the largest fifty; a node that many checkouts have used has more.
    largest = set(node["status"]["images"][0]["names"])
    image = f"{pool.lab.registry}/busybox:latest"

    def told() -> set[str]:
        return set(ad(pool, pool.pod)["K8SNodeImages"].split(","))

    assert told() & largest
    assert result(pool.shell("true")).code == 0
    until(lambda: image in told() and told() & largest, "both are told")


@pytest.mark.landing
def test_rank_prefers_the_slot_that_has_the_image(pool: Pool, pods: tuple[str, str]) -> None:
    first, second = pods
    image = f"{pool.lab.registry}/busybox:latest"
    # Each in turn has it, so that luck is not taken for it.
    for there, other in ((first, second), (second, first), (first, second), (second, first)):
        for one, images in ((there, image), (other, "none")):
            say(pool.of_pod(one), {"K8SNodeImages": images})
            until(partial(_tells, pool, one, images), "the slot tells")
        commands = {
            "container_image": pool.image("busybox"),
            "requirements": f'TARGET.K8SPodName == "{there}" || TARGET.K8SPodName == "{other}"',
            "rank": "TARGET.K8SJobImageRank",
        }
        with jobs.submit(pool.lab, "alice", commands) as submitted:
            assert submitted.wait("ExecuteEvent").attributes["SlotName"].endswith(there)
            submitted.ended()


def _tells(pool: Pool, pod: str, images: str) -> bool:
    return bool(ad(pool, pod)["K8SNodeImages"] == images)
