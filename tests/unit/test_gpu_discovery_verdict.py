"""From evidence to the GPUs that jobs may have: a row for each way that a container gets them, and for each lie."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from k8spilot.gpu.discovery.evidence import Device, Driver, Evidence, Node
from k8spilot.gpu.discovery.pod_request import UNKNOWN, PodRequest
from k8spilot.gpu.discovery.verdict import GpuVerdict, judge

A, B, C, D = (
    Device(f"GPU-{letter * 8}-1111-2222-3333-444455556666", "NVIDIA H200", at, at, f"0000:0{at}:00.0", 143771, "9.0")
    for at, letter in enumerate("abcd")
)
WHOLE = replace(A, divided=True)
PARTS = tuple(
    Device(
        f"MIG-{number * 8}-1111-2222-3333-444455556666", "NVIDIA H200 MIG 1g.18gb",
        parent=WHOLE.uuid, instance=(int(number), 0),
    )
    for number in "789"
)  # fmt: skip
FOLDER = "/var/run/nvidia-container-devices"
CONTROL = (Node("/dev/nvidiactl", "c", 195, 255), Node("/dev/nvidia-uvm", "c", 510, 0), Node("/dev/null", "c", 1, 3))
ONE = PodRequest({"nvidia.com/gpu": 1})
TWO = PodRequest({"nvidia.com/gpu": 2})
SHARED = PodRequest({"nvidia.com/gpu.shared": 2})
CLAIM = PodRequest(uncounted=("claim gpu",))
MIXED = PodRequest({"claim gpu": 1}, uncounted=("claim gpu (gpu.example.com)",))
FUSE = PodRequest(unknown=("smarter-devices/fuse: 1",))
NONE = PodRequest()


def seen(*devices: Device, visible: str | None = None, **more: Any) -> Evidence:
    """A container with some devices, their nodes and NVML."""
    nodes = [Node(f"/dev/nvidia{one.minor}", "c", 195, one.minor) for one in devices if one.minor is not None]
    defaults: dict[str, Any] = {
        "variables": {} if visible is None else {"NVIDIA_VISIBLE_DEVICES": visible},
        "nodes": (*nodes, *(CONTROL if devices else ())),
        "driver": Driver("", "580.159.04", 13000, devices) if devices else Driver("libnvidia-ml.so.1 is missing"),
    }
    return Evidence(**{**defaults, **more})


def short(devices: Sequence[Device]) -> str:
    return " ".join(one.uuid[4] for one in devices)


@pytest.mark.parametrize(
    ("evidence", "pod_request", "strategy", "usable"),
    [
        (seen(A, visible=A.uuid), ONE, "variable", "a"),
        (seen(A, B, visible=f"{A.uuid},{B.uuid}"), TWO, "variable", "a b"),
        (seen(A, visible=f"{A.uuid}::0,{A.uuid}::3"), TWO, "variable", "a"),
        (seen(A, visible=A.uuid), NONE, "variable", "a"),
        (seen(A, visible=A.uuid.removeprefix("GPU-").upper()), ONE, "variable", "a"),
        (seen(A, B, visible="0,3"), TWO, "variable", "a b"),
        (seen(A, visible="0,0"), TWO, "variable", "a"),
        (seen(A, visible="0"), SHARED, "variable", "a"),
        (seen(A, visible="0"), UNKNOWN, "variable", "a"),
        (seen(A, visible=A.uuid), SHARED, "variable", "a"),
        (seen(A, visible=A.uuid), FUSE, "variable", "a"),
        (seen(), FUSE, "none", ""),
        (seen(A), UNKNOWN, "cdi", "a"),
        (seen(A, visible=FOLDER, mounts=(A.uuid,)), ONE, "volume-mounts", "a"),
        (seen(A, visible=FOLDER, mounts=(f"{A.uuid}::1", f"{A.uuid}::2")), SHARED, "volume-mounts", "a"),
        (seen(A, visible=FOLDER, mounts=(f"cdi/nvidia.com/gpu/{A.uuid}",)), ONE, "volume-mounts", "a"),
        # The mounts have precedence, so that a variable of the image's own says nothing.
        (seen(A, visible="all", mounts=(A.uuid,)), ONE, "volume-mounts", "a"),
        (seen(A, visible="void"), ONE, "cdi", "a"),
        (seen(A, B), TWO, "cdi", "a b"),
        (seen(A), CLAIM, "cdi", "a"),
        (seen(A), SHARED, "cdi", "a"),
        (seen(A, visible=f"k8s.device-plugin.nvidia.com/gpu={A.uuid}"), ONE, "variable-cdi", "a"),
        (seen(A, visible="nvidia.com/gpu=0"), ONE, "variable-cdi", "a"),
        (seen(A, visible=A.uuid, capabilities=1 << 21), ONE, "variable", "a"),
        (seen(), NONE, "none", ""),
        (seen(visible="void"), NONE, "none", ""),
        (seen(visible="none"), NONE, "none", ""),
    ],
)
def test_each_strategy_is_recognised_and_its_devices_are_usable(
    evidence: Evidence, pod_request: PodRequest, strategy: str, usable: str
) -> None:
    found = judge(evidence, pod_request)
    assert (found.strategy, short(found.usable), found.problem) == (strategy, usable, "")
    assert found.reasons


@pytest.mark.parametrize(
    ("names", "pod_request"),
    [
        ([one.uuid for one in PARTS], PodRequest({"nvidia.com/mig-1g.18gb": 3})),
        ([f"MIG-{WHOLE.uuid}/{number}/0" for number in (7, 8, 9)], PodRequest({"nvidia.com/mig-1g.18gb": 3})),
    ],
)
@pytest.mark.parametrize("mounted", [False, True])
def test_mig_devices_are_known_by_both_of_their_names(names: list[str], pod_request: PodRequest, mounted: bool) -> None:
    how: dict[str, Any] = {"mounts": tuple(names)} if mounted else {"visible": ",".join(names)}
    found = judge(seen(WHOLE, *PARTS, **how), pod_request)
    assert (found.usable, found.problem) == (PARTS, "")


def test_of_mig_devices_only_those_that_were_given_are_usable() -> None:
    found = judge(seen(WHOLE, *PARTS, visible=PARTS[1].uuid), PodRequest({"nvidia.com/mig-1g.18gb": 1}))
    assert found.usable == (PARTS[1],)
    assert "without a request" in found.problem


def test_a_gpu_in_mig_mode_is_no_device_itself() -> None:
    found = judge(seen(WHOLE, visible=WHOLE.uuid), ONE)
    assert not found.usable
    assert "does not see" in found.problem


@pytest.mark.parametrize(
    ("evidence", "pod_request", "usable", "words"),
    [
        (seen(A, visible=f"{A.uuid},{B.uuid}"), TWO, "a", f"does not see {B.uuid}"),
        (seen(A, B, visible=A.uuid), ONE, "a", f"sees {B.uuid} without a request"),
        (seen(B, visible=A.uuid), ONE, "", "jobs get none"),
        (seen(A, B, visible=f"{A.uuid},{B.uuid}"), ONE, "", "2 GPUs are named, but the pod requests 1"),
        (seen(A, B, visible="all"), ONE, "", "asks for every GPU of the node"),
        (seen(A, B, visible="nvidia.com/gpu=all"), ONE, "", "asks for every GPU of the node"),
        (seen(A, B, cgroup=("a *:* rwm",)), ONE, "", "every device of the node"),
        (seen(A, B, visible="void", capabilities=1 << 21), TWO, "", "every device of the node"),
        (seen(A, B, visible="void"), ONE, "", "sees 2 GPUs, but 1 were requested"),
        (seen(A, visible="void"), TWO, "a", "sees 1 GPU of 2 that were requested"),
        (seen(A, B, visible="3"), ONE, "", "sees 2 GPUs, but 1 were requested"),
        (seen(A, B), MIXED, "", "sees 2 GPUs, but 1 were requested"),
        (seen(A, B, visible=f"{A.uuid},{B.uuid}"), MIXED, "", "2 GPUs are named, but the pod requests 1"),
        (seen(A, visible="0,1"), TWO, "a", "sees 1 GPU of 2"),
        (seen(A, B, visible="0,1"), ONE, "", "2 GPUs are named, but the pod requests 1"),
        (seen(A, B, visible="nvidia.com/gpu=0,nvidia.com/gpu=1"), ONE, "", "2 GPUs are named, but the pod requests 1"),
        (seen(A, visible=A.uuid), TWO, "a", "1 of 2 GPUs that were requested (nvidia.com/gpu: 2); jobs get 1 GPU"),
        (seen(A, visible=FOLDER, mounts=(A.uuid,)), TWO, "a", "these are 1 of 2 GPUs that were requested"),
        (seen(A, visible="0"), TWO, "a", "NVIDIA_VISIBLE_DEVICES has 1 of 2 GPUs that were requested"),
        (seen(A, B, visible="0"), TWO, "", "sees 2 GPUs, but 1 were requested (NVIDIA_VISIBLE_DEVICES)"),
        (seen(A), NONE, "", "that the pod does not request"),
        (seen(A, visible="0"), NONE, "", "that the pod does not request"),
        (seen(A), FUSE, "", "that the pod's requests (smarter-devices/fuse: 1) do not explain"),
        (seen(A, visible="0"), FUSE, "", "do not explain"),
        (seen(), ONE, "", "sees no GPU"),
        (seen(visible=A.uuid), ONE, "", "runtimeClassName: nvidia"),
        (seen(visible=FOLDER), ONE, "", "runtimeClassName: nvidia"),
        (seen(visible=FOLDER), NONE, "", "sees no GPU"),
        (seen(visible=FOLDER, mounts=(A.uuid,)), ONE, "", "sees no GPU"),
        (
            seen(visible=FOLDER, mounts=(A.uuid,)),
            NONE,
            "",
            "GPUs were requested, but the payload container sees no GPU",
        ),
    ],
)
def test_where_promise_and_sight_differ_it_is_said_and_nothing_doubtful_is_given(
    evidence: Evidence, pod_request: PodRequest, usable: str, words: str
) -> None:
    found = judge(evidence, pod_request)
    assert short(found.usable) == usable
    assert words in found.problem
    assert not found.problem.endswith(".")


def test_a_device_without_its_node_is_not_given() -> None:
    found = judge(replace(seen(A, B, visible=f"{A.uuid},{B.uuid}"), nodes=seen(A).nodes), TWO)
    assert short(found.usable) == "a"
    assert f"does not see {B.uuid}" in found.problem


@pytest.mark.parametrize(
    ("rules", "usable"),
    [
        (("c 1:3 rwm", "c 195:0 rw", "c 195:255 rw"), "a"),
        (("c 195:* rwm",), "a b"),
        (("c *:* m", "b *:* m"), ""),
        (("c 195:0 r",), ""),
    ],
)
def test_a_device_that_the_device_cgroup_forbids_is_not_given(rules: tuple[str, ...], usable: str) -> None:
    found = judge(replace(seen(A, B, visible=f"{A.uuid},{B.uuid}"), cgroup=rules), TWO)
    assert short(found.usable) == usable
    assert bool(found.problem) == (usable != "a b")


def test_without_nvml_the_drivers_files_and_the_nodes_tell() -> None:
    bare = tuple(replace(one, capability="", memory_mb=None) for one in (A, B, C))
    found = judge(replace(seen(A, visible="void"), driver=Driver("NVML does not start"), files=bare), ONE)
    assert (found.usable, found.problem) == ((bare[0],), "")


def test_nodes_that_nothing_names_are_nobodys() -> None:
    found = judge(replace(seen(A, visible="void"), driver=Driver("libnvidia-ml.so.1 is missing")), ONE)
    assert not found.usable
    assert "Add utility to NVIDIA_DRIVER_CAPABILITIES" in found.problem


def test_in_the_linux_of_windows_there_is_one_node_for_all() -> None:
    nodes = (Node("/dev/dxg", "c", 10, 127),)
    assert judge(replace(seen(A, visible=A.uuid), nodes=nodes), ONE).usable == (A,)


def test_gpus_of_other_vendors_are_said_to_be_unknown() -> None:
    found = judge(seen(), PodRequest(others={"amd.com/gpu": 1}))
    assert "amd.com/gpu" in found.problem
    assert not found.usable


@pytest.mark.parametrize(
    ("resources", "pod_request"),
    [
        ({"limits": {"cpu": "1", "nvidia.com/gpu": "2"}, "requests": {"cpu": "1", "nvidia.com/gpu": "2"}}, TWO),
        ({"limits": {"nvidia.com/gpu": 1}}, ONE),
        ({"limits": {"nvidia.com/gpu": 0}}, NONE),
        ({"limits": {"nvidia.com/gpu.shared": 2}}, SHARED),
        ({"limits": {"requests.nvidia.com/mig-1g.5gb": 1}}, PodRequest({"requests.nvidia.com/mig-1g.5gb": 1})),
        ({"claims": [{"name": "gpu"}]}, CLAIM),
        ({"limits": {"amd.com/gpu": 1}}, PodRequest(others={"amd.com/gpu": 1})),
        ({"limits": {"aliyun.com/gpu-mem": 8}}, PodRequest(unknown=("aliyun.com/gpu-mem: 8",))),
        ({"limits": {"attachable-volumes.kubernetes.io/x": 1, "memory": "1Gi", "hugepages-2Mi": "4Mi"}}, NONE),
        (None, NONE),
    ],
)
def test_what_a_pod_promises_is_read_from_the_limits_of_its_payload(resources: Any, pod_request: PodRequest) -> None:
    found = PodRequest.of({"name": "payload", "resources": resources})
    assert found == pod_request
    assert PodRequest.of_json(found.json()) == pod_request


def test_evidence_survives_its_journey() -> None:
    import json  # noqa: PLC0415

    before = seen(WHOLE, *PARTS, visible="x", mounts=("a/b",), cgroup=("c 195:0 rw",), files=(B,), capabilities=3)
    assert Evidence.of(json.loads(json.dumps(before.json()))) == before


@pytest.mark.parametrize("nonsense", [{}, [], {"driver": 3}, {"driver": {}, "mounts": 3}, None])
def test_what_is_no_evidence_is_not_taken_for_it(nonsense: Any) -> None:
    with pytest.raises(ValueError, match="not the output of a probe"):
        Evidence.of(nonsense)


def test_nothing_seen_is_nothing_wrong() -> None:
    assert judge(Evidence(), NONE) == GpuVerdict(reasons=judge(Evidence(), NONE).reasons)
