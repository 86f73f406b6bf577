"""GPUs by ResourceClaims (dynamic resource allocation): what NVIDIA's driver gives, jobs have."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lab import dra, jobs, pilot
from lab.api import Lab
from lab.errors import LabError
from lab.gpu import claims
from lab.gpu.devices import Inventory
from lab.levels import NAMESPACES, Level
from lab.oci import OciImage, Pusher, shell
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import Pool, result
from tests.e2e.test_gpu_usage import Measured
from tests.e2e.test_gpus import look, told

pytestmark = pytest.mark.xdist_group("claims of gpus")
"""All tests are of one worker: there is one driver, and it has few GPUs."""
NIGHTLY = pytest.mark.nightly

RIGHTS = CHECKOUT / "components/gpu-dra/rights.yaml"
LOOK = """
env | grep '^CUDA_VISIBLE_DEVICES='
echo nodes=$(ls /dev | grep -c '^nvidia[0-9]')
"""
NAMES = claims.names(Inventory.make())


@pytest.fixture(scope="module", autouse=True)
def rights(lab: Lab) -> Iterator[None]:
    """The component's right holds for all pilots of the namespace: it goes with the last of these tests."""
    yield
    for namespace in NAMESPACES.values():
        lab.kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", str(RIGHTS))


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Iterator[Lab]:
    """The lab, with a driver that gives GPUs as NVIDIA's does."""
    if lab.settings.kubernetes == "1.33":
        pytest.skip("this Kubernetes has no resource.k8s.io/v1")
    with dra.running(lab.settings, lab.progress):
        yield lab


def overlay(
    name: str,
    count: int = 1,
    *patches: dict[str, Any],
    device_class: str = claims.DRIVER,
    components: tuple[str, ...] = (),
) -> dict[str, Any]:
    """More fields of a kustomization: the component, with a template of the pod's own."""
    exactly = "/spec/spec/devices/requests/0/exactly"
    template = [
        {"op": "replace", "path": "/metadata/name", "value": name},
        {"op": "replace", "path": f"{exactly}/count", "value": count},
        {"op": "replace", "path": f"{exactly}/deviceClassName", "value": device_class},
    ]
    own = {"op": "replace", "path": "/spec/resourceClaims/0/resourceClaimTemplateName", "value": name}
    return {
        "components": ["gpu-dra", *components],
        "patches": [
            {"target": {"kind": "ResourceClaimTemplate"}, "patch": json.dumps(template)},
            pilot.change(own),
            *patches,
        ],
    }


@contextmanager
def claiming_pod(
    lab: Lab, name: str, count: int = 1, *patches: dict[str, Any], slots: int = 1, **more: Any
) -> Iterator[Pool]:
    """A pilot with a claim, in the pool."""
    with ExitStack() as cleanup:
        cleanup.callback(
            lab.kubectl, "delete", "resourceclaimtemplate", name, "-n", lab.namespace, "--ignore-not-found"
        )
        cleanup.callback(pilot.delete, lab, name)
        pilot.deploy(lab, name, overlay=overlay(name, count, *patches, **more), slots=slots)
        jobs.wait_in_pool(lab, name)
        yield Pool(lab, name, cleanup)


def allocated(pool: Pool) -> dict[str, list[str]]:
    """The uuids of the devices that the scheduler has allocated, by the names of the pod's claims."""
    found = {}
    for status in pool.status()["status"]["resourceClaimStatuses"]:
        query = ("get", "resourceclaim", status["resourceClaimName"], "-n", pool.lab.namespace, "-o", "json")
        results = json.loads(pool.lab.kubectl(*query))["status"]["allocation"]["devices"]["results"]
        found[status["name"]] = sorted(NAMES[one["device"]] for one in results)
    return found


def test_a_job_has_the_gpus_that_the_scheduler_has_allocated_to_the_claim(driver: Lab, owner: str) -> None:
    with claiming_pod(driver, f"e2e-{owner}-claim", 2) as pool:
        found = told(pool)
        assert (found["strategy"], found["problem"], found["requested"]) == ("cdi", None, "claim gpu: 2")
        assert {"gpu": sorted(found["usable"])} == allocated(pool)
        assert pool.of_slot("GPUs") == "2"
        seen = look(pool, request_gpus="1")
        assert seen["CUDA_VISIBLE_DEVICES"] == found["usable"][:1]
        assert len(seen["node"]) == 2
        assert not pool.faults(120)
        checked = pool.inside("k8spilot check || true")
        assert "2 x NVIDIA H200" in checked
        assert "resourceclaims" not in checked


@pytest.mark.landing
def test_each_payload_container_has_a_claim_of_its_own(driver: Lab, owner: str) -> None:
    cpus = pilot.change({"op": "replace", "path": "/spec/initContainers/1/resources/limits/cpu", "value": "2"})
    with claiming_pod(driver, f"e2e-{owner}-claims", 1, cpus, slots=2) as pool:
        expected = allocated(pool)
        containers = told(pool)["containers"]
        assert {f"gpu-{number}": found["usable"] for number, found in containers.items()} == expected
        assert len({uuid for uuids in expected.values() for uuid in uuids}) == 2
        running = [pool.shell(f"{LOOK} sleep 20", request_gpus="1", request_memory="64M") for _ in range(2)]
        seen = [dict(line.partition("=")[::2] for line in result(one, timeout=90).text.splitlines()) for one in running]
        assert sorted(one["CUDA_VISIBLE_DEVICES"] for one in seen) == sorted(uuids[0] for uuids in expected.values())
        assert all(one["nodes"] == "1" for one in seen), "no job sees the other's GPU"


def test_an_image_that_asks_for_every_gpu_gets_those_of_the_claim(driver: Lab, owner: str, pusher: Pusher) -> None:
    """By the variable, for which NVIDIA's runtime gives any GPU of the node."""
    greedy = f"greedy-{owner}"
    pusher.push(f"{greedy}:1", OciImage((shell(),), {"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"]}))
    runtime = pilot.change({"op": "add", "path": "/spec/runtimeClassName", "value": "nvidia"})
    with claiming_pod(driver, f"e2e-{owner}-greedy", 1, runtime) as pool:
        job = pool.shell(LOOK, image=f"{greedy}:1", request_gpus="1")
        (uuid,) = allocated(pool)["gpu"]
        assert result(job, timeout=90).text == f"CUDA_VISIBLE_DEVICES={uuid}\nnodes=1\n"


@NIGHTLY
def test_a_limit_that_kubernetes_turns_into_a_claim_brings_gpus(driver: Lab, owner: str) -> None:
    """From Kubernetes 1.36 on by default (KEP-5004)."""
    if driver.settings.kubernetes < "1.36":
        pytest.skip("this Kubernetes makes no claims of limits")
    limits, name = "/spec/initContainers/1/resources/limits", f"e2e-{owner}-implicit"
    of_class = f"deviceclass.resource.kubernetes.io~1{claims.DRIVER}"
    change = pilot.change(
        {"op": "remove", "path": f"{limits}/nvidia.com~1gpu"},
        {"op": "add", "path": f"{limits}/{of_class}", "value": "1"},
    )
    pilot.deploy(driver, name, overlay={"components": ["gpu"], "patches": [change]})
    try:
        jobs.wait_in_pool(driver, name)
        with ExitStack() as cleanup:
            pool = Pool(driver, name, cleanup)
            found = told(pool)
            assert (found["strategy"], found["problem"], len(found["usable"])) == ("cdi", None, 1)
            assert look(pool, request_gpus="1")["CUDA_VISIBLE_DEVICES"] == found["usable"]
    finally:
        pilot.delete(driver, name)


@NIGHTLY
def test_parts_of_a_gpu_come_by_their_own_class(driver: Lab, owner: str) -> None:
    with claiming_pod(driver, f"e2e-{owner}-mig", device_class=claims.MIG_CLASS) as pool:
        found = told(pool)
        assert {"gpu": found["usable"]} == allocated(pool)
        assert found["usable"][0].startswith("MIG-")
        assert look(pool, request_gpus="1")["CUDA_VISIBLE_DEVICES"] == found["usable"]


@pytest.mark.landing
def test_without_the_right_to_read_claims_jobs_have_gpus_and_the_check_says_what_is_missing(
    driver: Lab, owner: str
) -> None:
    driver.kubectl("delete", "-n", PILOT_NAMESPACE, "--ignore-not-found", "-f", str(RIGHTS))
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "any"}}
    without = {
        "target": {"kind": "RoleBinding", "name": "k8spilot-gpu-claims"},
        "patch": json.dumps({"$patch": "delete", **meta}),
    }
    with claiming_pod(driver, f"e2e-{owner}-unread", 1, without) as pool:
        found = told(pool)
        assert (found["problem"], found["requested"]) == (None, "claim gpu")
        assert {"gpu": found["usable"]} == allocated(pool)
        assert "let the service account get resourceclaims in the namespace" in pool.inside("k8spilot check || true")


@pytest.mark.parametrize("level", ["baseline", pytest.param("restricted", marks=NIGHTLY)])
def test_a_sidecar_with_the_claim_measures_the_gpus(driver: Lab, owner: str, level: Level) -> None:
    with claiming_pod(driver.at(level), f"e2e-{owner}-measured", components=("gpu-dra-metrics",)) as pool:
        (uuid,) = told(pool)["usable"]
        measured = Measured(pool, [uuid])
        measured.load((73, 3000))
        measured.shows((73, 3000))
        measured.load((0, 0))
        assert measured.containers() == []


@NIGHTLY
def test_an_ephemeral_container_can_have_no_claim(driver: Lab, owner: str) -> None:
    with claiming_pod(driver, f"e2e-{owner}-bare") as pool:
        one = {"name": "second", "image": driver.image, "resources": {"claims": [{"name": "gpu"}]}}
        patch = json.dumps({"spec": {"ephemeralContainers": [one]}})
        with pytest.raises(LabError, match="cannot be set for an Ephemeral Container"):
            driver.kubectl(
                "patch", "pod", pool.pod, "-n", PILOT_NAMESPACE, "--subresource=ephemeralcontainers", "-p", patch
            )


@NIGHTLY
def test_devices_of_another_driver_are_no_gpus_for_jobs(lab: Lab, owner: str) -> None:
    """The example driver of Kubernetes: its devices are variables."""
    with (
        dra.running(lab.settings, lab.progress, dra.EXAMPLE),
        claiming_pod(lab, f"e2e-{owner}-example", device_class=dra.EXAMPLE_DRIVER) as pool,
    ):
        found = told(pool)
        assert (found["usable"], found["problem"]) == ([], None)
        assert found["requested"] == "claim gpu (gpu.example.com)"
        assert pool.of_slot("GPUs") == "0"
        variables = lab.kubectl("exec", "-n", PILOT_NAMESPACE, pool.pod, "-c", "payload", "--", "env")
        assert "DRA_RESOURCE_DRIVER_NAME=gpu.example.com" in variables
