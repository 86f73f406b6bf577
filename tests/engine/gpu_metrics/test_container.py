"""The life of the ephemeral container that measures the GPUs."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8spilot.common.errors import ClusterRefused
from k8spilot.gpu.monitoring import metrics_container as subject
from k8spilot.gpu.monitoring.device_access import DeviceRequest
from k8spilot.gpu.monitoring.meter import Gpu
from k8spilot.gpu.monitoring.metrics_container import MonitoredGpus
from lab.gpu import nvml
from tests.engine.gpu_metrics.node import TWO, UUIDS, Node, driver, eventually, write
from tests.simulator.ephemeral import Spec, become

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="samplers run under a uid of their own, for which it takes root"
)


async def test_one_container_measures_and_has_no_rights(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler said hello")
        (spec,) = node.kubelet.specs
    assert spec["name"] == "gpu-metrics-1"
    assert spec["securityContext"] == {
        "runAsUser": 65533,
        "runAsGroup": 65533,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [one["name"] for one in spec["volumeMounts"]] == ["gpu-metrics"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": ",".join(UUIDS[:2])} in spec["env"]
    assert node.told == []


async def test_figures_are_what_the_driver_was_told(node: Node) -> None:
    found = driver()
    since = time.time() - 5  # a sampler may begin within the driver's first sample of it
    found.gpus[0].busy(80, since)
    found.gpus[0].used_bytes = 3000 * nvml.MIB
    found.gpus[2].busy(100, since)
    write(node.stub, found)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].known > 2, "figures")
        assert metrics.meter is not None
        first, second = metrics.meter.gpus.values()
        assert first.busy / first.known == pytest.approx(0.8, abs=0.02)
        assert second.busy == 0
        assert first.last is not None
        assert first.last.memory == 3000 * nvml.MIB
        assert UUIDS[2] not in metrics.meter.gpus, "the devices of others are none of ours"


async def test_a_peak_between_two_messages_is_seen(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        assert metrics.meter is not None
        reader, first = metrics.meter.reader(), metrics.meter.gpus[UUIDS[0]]
        for _ in range(5):  # a busy machine may let the sampler wait for all of one peak
            await _next_message(first)  # another one follows in half a second
            write(node.stub, driver(used_bytes=70_000 * nvml.MIB))
            await asyncio.sleep(0.25)
            write(node.stub, driver(used_bytes=10 * nvml.MIB))
            await asyncio.sleep(1.0)
            if {one.peak for one in reader.read()} == {70_000 * nvml.MIB}:
                return
    pytest.fail("no peak was seen")


async def _next_message(gpu: Gpu) -> None:
    known = gpu.known
    await eventually(lambda: gpu.known > known, "a message")


async def test_an_engine_that_starts_again_goes_on_with_the_same_container(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "the sampler again")
    assert node.containers() == ["gpu-metrics-1"]


async def test_a_container_that_dies_is_followed_by_two_more_and_then_it_is_said_once(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        for number in (1, 2, 3):
            await eventually(lambda: metrics.up, "a sampler")
            node.kubelet.processes[f"gpu-metrics-{number}"].send_signal(signal.SIGKILL)
            await eventually(lambda: not metrics.up, "it is lost")
            assert metrics.meter is not None
            assert all(gpu.last is None for gpu in metrics.meter.now())
        await eventually(lambda: node.told, "it is told")
    assert node.containers() == ["gpu-metrics-1", "gpu-metrics-2", "gpu-metrics-3"]
    (words,) = node.told
    assert "3 containers" in words
    async with node.measured(TWO):  # the next engine counts what the pod has
        await eventually(lambda: len(node.told) == 2, "it is told again")
    assert len(node.containers()) == 3


async def test_a_container_that_sees_other_devices_is_ended_and_not_believed(node: Node) -> None:
    strangers = nvml.Driver([nvml.h200(0, "GPU-deadbeef-0000-4000-8000-000000000000")])
    write(node.stub, strangers)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: node.told, "it is told")
        assert not metrics.up
    assert node.containers() == ["gpu-metrics-1"], "the same again would see the same"
    assert UUIDS[0] in node.told[0]
    assert "runtimeClassName: nvidia" in node.told[0]


async def test_a_container_without_the_drivers_library_says_what_an_administrator_can_do(node: Node) -> None:
    node.kubelet.gives = lambda _: {}
    async with node.measured(TWO):
        await eventually(lambda: node.told, "it is told")
    assert "NVML Shared Library Not Found" in node.told[0]
    assert "runtimeClassName: nvidia" in node.told[0]


async def test_with_cdi_a_name_of_cdi_is_tried_first_and_then_a_bare_one(node: Node) -> None:
    def gives(spec: Spec) -> dict[str, str] | str:
        visible = next(one["value"] for one in spec["env"] if one["name"] == "NVIDIA_VISIBLE_DEVICES")
        return "unresolvable CDI devices" if "=" in visible else node.stub.environment

    node.kubelet.gives = gives
    async with node.measured(MonitoredGpus("cdi", (), [UUIDS[:1]])) as metrics:
        await eventually(lambda: metrics.up, "the second one is right")
    asked = [
        next(e["value"] for e in one["env"] if e["name"] == "NVIDIA_VISIBLE_DEVICES") for one in node.kubelet.specs
    ]
    assert asked == [f"k8s.device-plugin.nvidia.com/gpu={UUIDS[0]}", UUIDS[0]]
    assert node.told == []


async def test_where_the_list_is_mounted_the_same_mounts_are_made(node: Node) -> None:
    def change(pod: dict[str, Any]) -> None:
        pod["spec"]["volumes"] = [{"name": "nothing", "hostPath": {"path": "/dev/null"}}]

    await node.server.update(change)
    await node.pod.until(lambda pod: pod["spec"].get("volumes"))
    async with node.measured(MonitoredGpus("volume-mounts", UUIDS[:2], [UUIDS[:2]])) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
    (spec,) = node.kubelet.specs
    folder = "/var/run/nvidia-container-devices"
    assert {"name": "nothing", "mountPath": f"{folder}/{UUIDS[0]}"} in spec["volumeMounts"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": folder} in spec["env"]


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            (
                403,
                'pods "pilot" is forbidden: User "x" cannot patch resource "pods/ephemeralcontainers" in API group ""',
            ),
            "patch of pods/ephemeralcontainers",
        ),
        ((403, "admission webhook denied the request: no debugging here"), "no debugging here"),
    ],
)
async def test_a_cluster_that_takes_no_such_container_is_asked_once(
    node: Node, refusal: tuple[int, str], words: str
) -> None:
    node.server.ephemeral_refusal = refusal
    async with node.measured(TWO):
        await eventually(lambda: node.told, "it is told")
        await asyncio.sleep(0.3)
    assert words in node.told[0]
    assert len(node.told) == node.server.requests["ephemeral"] == 1


@pytest.mark.parametrize(
    "refusal", [(503, "etcd has no leader"), (403, 'pods "pilot" is forbidden: not yet ready to handle request')]
)
async def test_an_api_server_that_fails_for_a_moment_is_asked_again(node: Node, refusal: tuple[int, str]) -> None:
    node.server.ephemeral_refusal = refusal
    async with node.measured(TWO) as metrics:
        await eventually(lambda: node.server.requests["ephemeral"], "asked")
        node.server.ephemeral_refusal = None
        await eventually(lambda: metrics.up, "a sampler")
    assert node.containers() == ["gpu-metrics-1"]
    assert node.told == []


async def test_a_container_that_a_dying_engine_has_added_is_taken_over(node: Node) -> None:
    metrics = node.metrics()

    async def late(*_: Any) -> None:
        container = metrics._container(DeviceRequest(",".join(UUIDS[:2]), ""), "gpu-metrics-1", "gpu-metrics")
        await node.server.update(lambda pod: pod["spec"].update(ephemeralContainers=[{**container, "image": "old"}]))
        raise ClusterRefused("existing ephemeral containers may not be changed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "add", late)
        async with node.measured(TWO, metrics):
            await eventually(lambda: metrics.up, "the sampler")
    assert node.containers() == ["gpu-metrics-1"]
    assert node.told == []


async def test_a_pod_without_the_volume_says_so(node: Node) -> None:
    await node.server.update(lambda pod: pod["spec"]["containers"][0].update(volumeMounts=[]))
    await node.pod.until(lambda pod: not pod["spec"]["containers"][0]["volumeMounts"] or None)
    async with node.measured(TWO):
        await eventually(lambda: node.told, "it is told")
    assert "has no volume at" in node.told[0]
    assert node.containers() == []


async def test_a_volume_that_the_job_has_too_is_not_trusted(node: Node) -> None:
    mount = {"name": "gpu-metrics", "mountPath": "/tmp"}
    await node.server.update(lambda pod: pod["spec"]["initContainers"][0].update(volumeMounts=[mount]))
    await node.pod.until(lambda pod: pod["spec"]["initContainers"][0].get("volumeMounts"))
    async with node.measured(TWO):
        await eventually(lambda: node.told, "it is told")
    assert "another container also mounts the volume" in node.told[0]
    assert node.containers() == []


async def test_gpus_of_a_resource_claim_are_not_measured_and_it_is_said(node: Node) -> None:
    def change(pod: dict[str, Any]) -> None:
        pod["spec"]["initContainers"][0]["resources"] = {"claims": [{"name": "gpu"}]}

    await node.server.update(change)
    await node.pod.until(lambda pod: pod["spec"]["initContainers"][0].get("resources"))
    async with node.measured(MonitoredGpus("cdi", (), [UUIDS[:1]])):
        await eventually(lambda: node.told, "it is told")
    assert "use the component gpu-dra-metrics" in node.told[0]
    assert node.containers() == []


@asynccontextmanager
async def sidecar(node: Node, visible: dict[str, str]) -> AsyncIterator[None]:
    """The sampler of the manifest, which the kubelet starts again as often as it ends."""
    mounts = [{"name": "gpu-metrics", "mountPath": str(node.folder)}]
    container = {"name": "gpu-metrics", "volumeMounts": mounts, "resources": {"claims": [{"name": "gpu"}]}}
    await node.server.update(lambda pod: pod["spec"]["initContainers"].append(container))
    await node.pod.until(lambda pod: len(pod["spec"]["initContainers"]) == 2 or None)
    command = [*become(65533), sys.executable, "-P", "-m", "k8spilot.gpu.monitoring.sampler", str(node.folder), "0.1"]

    async def run() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(*command, env={"PATH": os.environ["PATH"], **visible})
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_sidecar_with_the_claim_measures_and_no_container_is_added(node: Node) -> None:
    async with (
        sidecar(node, node.stub.environment),
        node.measured(MonitoredGpus("cdi", (), [UUIDS[:2]])) as metrics,
    ):
        await eventually(lambda: metrics.up, "the sampler")
    assert node.containers() == node.told == []
    assert node.server.requests["ephemeral"] == 0


async def test_a_sidecar_without_the_claim_is_told_of(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_START_SECONDS", 10.0)
    found = MonitoredGpus("cdi", (), [["GPU-another"]])
    async with sidecar(node, node.stub.environment), node.measured(found) as metrics:
        await eventually(lambda: node.told, "it is told")
        assert not metrics.up
    assert "the container gpu-metrics does not get them (it sees 4 devices, but not GPU-another)" in node.told[0]
    assert node.containers() == []


async def test_a_pod_without_gpus_has_no_container_and_says_nothing(node: Node) -> None:
    async with node.measured(MonitoredGpus("none", (), ())) as metrics:
        await asyncio.sleep(0.2)
        assert metrics.meter is None
    assert node.containers() == node.told == []
