"""GPUs by ResourceClaims (dynamic resource allocation): what NVIDIA's driver gives, jobs have."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lab import dra, jobs, pilot
from lab.api import Lab
from lab.gpu import claims
from lab.gpu.devices import Inventory
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool
from tests.e2e.test_gpus import look, told

pytestmark = pytest.mark.xdist_group("claims of gpus")
"""All tests are of one worker: there is one driver, and it has few GPUs."""

NAMES = claims.names(Inventory.make())


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Iterator[Lab]:
    """The lab, with a driver that gives GPUs as NVIDIA's does."""
    with dra.running(lab.settings, lab.progress):
        yield lab


def overlay(name: str, count: int = 1, *patches: dict[str, Any], device_class: str = claims.DRIVER) -> dict[str, Any]:
    """More fields of a kustomization: the component, with a template of the pod's own."""
    exactly = "/spec/spec/devices/requests/0/exactly"
    template = [
        {"op": "replace", "path": "/metadata/name", "value": name},
        {"op": "replace", "path": f"{exactly}/count", "value": count},
        {"op": "replace", "path": f"{exactly}/deviceClassName", "value": device_class},
    ]
    own = {"op": "replace", "path": "/spec/resourceClaims/0/resourceClaimTemplateName", "value": name}
    return {
        "components": ["gpu-dra"],
        "patches": [
            {"target": {"kind": "ResourceClaimTemplate"}, "patch": json.dumps(template)},
            pilot.change(own),
            *patches,
        ],
    }


@contextmanager
def claiming_pod(lab: Lab, name: str, count: int = 1, **more: Any) -> Iterator[Pool]:
    """A pilot with a claim, in the pool."""
    with ExitStack() as cleanup:
        cleanup.callback(
            lab.kubectl, "delete", "resourceclaimtemplate", name, "-n", PILOT_NAMESPACE, "--ignore-not-found"
        )
        cleanup.callback(pilot.delete, lab, name)
        pilot.deploy(lab, name, overlay=overlay(name, count, **more))
        jobs.wait_in_pool(lab, name)
        yield Pool(lab, name, cleanup)


def allocated(pool: Pool) -> list[str]:
    """The uuids of the devices that the scheduler has allocated to the pod."""
    (status,) = pool.status()["status"]["resourceClaimStatuses"]
    query = ("get", "resourceclaim", status["resourceClaimName"], "-n", PILOT_NAMESPACE, "-o", "json")
    claim = json.loads(pool.lab.kubectl(*query))
    return sorted(NAMES[one["device"]] for one in claim["status"]["allocation"]["devices"]["results"])


def test_a_job_has_the_gpus_that_the_scheduler_has_allocated_to_the_claim(driver: Lab, owner: str) -> None:
    with claiming_pod(driver, f"e2e-{owner}-claim", 2) as pool:
        found = told(pool)
        assert (found["strategy"], found["problem"], found["promised"]) == ("cdi", None, "claim gpu: 2")
        assert sorted(found["usable"]) == allocated(pool)
        assert pool.of_slot("GPUs") == "2"
        seen = look(pool, request_gpus="1")
        assert seen["CUDA_VISIBLE_DEVICES"] == found["usable"][:1]
        assert len(seen["node"]) == 2
        assert not pool.faults(120)
        checked = pool.inside("k8spilot check || true")
        assert "2 x NVIDIA H200" in checked
        assert "resourceclaims" not in checked
