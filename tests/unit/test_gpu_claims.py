"""ResourceClaims of GPUs: what they have and request, and which GPUs jobs get by them."""

import json
from typing import Any

import pytest

from k8spilot.gpu.discovery.claims import (
    NVIDIA,
    Claim,
    ClaimedDevice,
    allocated,
    object_names,
    requested,
    requested_claims,
)
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.discovery.verdict import judge
from tests.unit.test_gpu_discovery_verdict import A, B, seen, short

Json = dict[str, Any]
UID = "2308e98c-0837-4295-bb01-023c696b7884"


def result(device: str, driver: str = NVIDIA, request: str = "gpu", **more: Any) -> Json:
    return {"request": request, "driver": driver, "pool": "node", "device": device, **more}


def claim(*results: Json, users: tuple[str, ...] = (UID,)) -> Json:
    """A ResourceClaim as the API server has it once the scheduler has allocated devices."""
    reserved = [{"resource": "pods", "name": f"pod-{uid[:4]}", "uid": uid} for uid in users]
    return {"status": {"allocation": {"devices": {"results": list(results)}}, "reservedFor": reserved}}


def read(*results: Json) -> Claim:
    found = allocated(claim(*results), UID)
    assert found is not None
    return found


def test_a_claim_has_what_the_scheduler_has_allocated() -> None:
    found = read(result("gpu-3"), result("gpu-4", request="other/first"))
    assert found == Claim((ClaimedDevice("gpu", NVIDIA, "node/gpu-3"), ClaimedDevice("other", NVIDIA, "node/gpu-4")))
    assert allocated({"status": {}}, UID) is None
    assert allocated({}, UID) is None


@pytest.mark.parametrize(
    "wrong", [{"status": 1}, claim({"request": "gpu"}), {"status": {"allocation": {"devices": [1]}}}]
)
def test_what_is_no_claim_is_refused(wrong: Json) -> None:
    with pytest.raises(ValueError, match="this is not a ResourceClaim"):
        allocated(wrong, UID)


def test_the_names_of_claims_are_in_the_specification_or_in_the_status() -> None:
    pod = {
        "spec": {
            "resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "template"},
                {"name": "given", "resourceClaimName": "by-hand"},
                {"name": "later", "resourceClaimTemplateName": "template"},
            ]
        },
        "status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "pod-own-x7"}, {"name": "later"}]},
    }
    assert object_names(pod) == {"own": "pod-own-x7", "given": "by-hand"}
    assert object_names({"spec": {}}) == {}


def container(*entries: Json, **limits: str) -> Json:
    return {"resources": {"claims": list(entries), "limits": limits}}


GPUS = read(result("gpu-3"), result("gpu-4"), result("gpu-5", request="more"))


@pytest.mark.parametrize(
    ("entries", "found", "request_"),
    [
        ([{"name": "gpu"}], GPUS, PodRequest({"claim gpu": 3})),
        ([{"name": "gpu", "request": "more"}], GPUS, PodRequest({"claim gpu/more": 1})),
        ([{"name": "gpu", "request": "gpu"}], GPUS, PodRequest({"claim gpu/gpu": 2})),
        ([{"name": "gpu"}], None, PodRequest(uncounted=("claim gpu",))),
        # Two shares of one device are one device, as the container sees it.
        (
            [{"name": "gpu"}],
            read(result("gpu-3", shareID="a"), result("gpu-3", shareID="b")),
            PodRequest({"claim gpu": 1}),
        ),
        ([{"name": "gpu"}], read(result("a", "gpu.amd.com")), PodRequest(others={"claim gpu (gpu.amd.com)": 1})),
        (
            [{"name": "gpu"}],
            read(result("channel-0", "compute-domain.nvidia.com")),
            PodRequest(unknown=("claim gpu (compute-domain.nvidia.com)",)),
        ),
        (
            [{"name": "gpu"}],
            read(result("x", "gpu.example.com")),
            PodRequest(uncounted=("claim gpu (gpu.example.com)",)),
        ),
        # With administrative access a pod has devices of other pods.
        ([{"name": "gpu"}], read(result("gpu-3", adminAccess=True)), PodRequest(unknown=("claim gpu (adminAccess)",))),
    ],
)
def test_a_container_requests_the_devices_of_its_claims(
    entries: list[Json], found: Claim | None, request_: PodRequest
) -> None:
    assert PodRequest.of(container(*entries), {} if found is None else {"gpu": found}) == request_
    assert PodRequest.of_json(json.loads(json.dumps(request_.json()))) == request_


def test_limits_that_kubernetes_turns_into_a_claim_are_counted() -> None:
    prefix = "deviceclass.resource.kubernetes.io"
    found = PodRequest.of(container(**{f"{prefix}/gpu.nvidia.com": "2", f"{prefix}/nic.example.org": "1"}))
    assert (found.count, found.unknown) == (2, (f"{prefix}/nic.example.org: 1",))


@pytest.mark.parametrize(
    ("devices", "claimed", "usable", "words"),
    [
        ((A,), (result("gpu-0"),), "a", ""),
        ((A, B), (result("gpu-0"), result("gpu-1")), "a b", ""),
        # A device that the scheduler has not allocated may be another pod's.
        ((A, B), (result("gpu-0"),), "", "sees 2 GPUs, but 1 were requested (claim gpu: 1)"),
        ((A,), (result("gpu-0"), result("gpu-1")), "a", "sees 1 GPU of 2 that were requested"),
        ((), (result("gpu-0"),), "", "Enable CDI in the node's container runtime"),
        ((A,), (result("gpu-0", adminAccess=True),), "", "do not explain"),
        ((A,), (result("channel-0", "compute-domain.nvidia.com"),), "", "do not explain"),
        ((A,), (result("x", "gpu.example.com"),), "a", ""),
        ((), (result("x", "gpu.amd.com"),), "", "k8spilot supports NVIDIA GPUs only"),
    ],
)
def test_jobs_get_the_gpus_that_the_claim_explains(
    devices: tuple[Any, ...], claimed: tuple[Json, ...], usable: str, words: str
) -> None:
    found = judge(seen(*devices), PodRequest.of(container({"name": "gpu"}), {"gpu": read(*claimed)}))
    assert short(found.usable) == usable
    assert words in found.problem if words else found.problem == ""


@pytest.mark.parametrize("request_", [PodRequest({"claim gpu": 1}), PodRequest(uncounted=("claim gpu",))])
def test_a_container_that_could_not_be_looked_into_is_told_of_where_it_has_a_claim(request_: PodRequest) -> None:
    assert "the pod requests claim gpu, but it hangs" in GpuRecord(request_, failure="it hangs").verdict.problem


def exactly(**more: Any) -> Json:
    return {"name": "gpu", "exactly": {"deviceClassName": NVIDIA, **more}}


@pytest.mark.parametrize(
    ("requests", "count"),
    [
        ([exactly()], 1),
        ([exactly(allocationMode="ExactCount", count=4)], 4),
        ([exactly(), {"name": "part", "exactly": {"deviceClassName": "mig.nvidia.com", "count": 2}}], 3),
        ([exactly(allocationMode="All")], None),
        ([{"name": "gpu", "firstAvailable": [{"name": "one", "deviceClassName": NVIDIA}]}], None),
    ],
)
def test_a_template_requests_a_number_or_none_that_is_fixed(requests: list[Json], count: int | None) -> None:
    found = requested({"devices": {"requests": requests}})
    assert (found and len(found.devices)) == count


@pytest.mark.parametrize(
    ("device_class", "expected"),
    [
        ("mig.nvidia.com", PodRequest({"claim gpu": 1})),
        ("compute-domain-daemon.nvidia.com", PodRequest(unknown=("claim gpu (compute-domain.nvidia.com)",))),
        ("gpu.example.com", PodRequest(uncounted=("claim gpu (gpu.example.com)",))),
    ],
)
def test_the_class_of_a_request_names_the_driver_before_devices_are_allocated(
    device_class: str, expected: PodRequest
) -> None:
    found = requested({"devices": {"requests": [exactly(deviceClassName=device_class)]}})
    assert found is not None
    assert PodRequest.of(container({"name": "gpu"}), {"gpu": found}) == expected


@pytest.mark.parametrize("count", [33, 10**9])
def test_a_claim_for_more_devices_than_kubernetes_allocates_is_an_error(count: int) -> None:
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count}
    with pytest.raises(ValueError, match=f"is for {count} devices, and a claim has at most 32"):
        requested({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})


def test_a_template_without_a_spec_of_the_claim_is_an_error() -> None:
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {}}
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    with pytest.raises(ValueError, match=r"has no spec\.spec"):
        requested_claims(spec, [template])
