"""The ephemeral container that measures the GPUs: its life, what it is believed, and what becomes of its figures."""

import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from k8spilot.errors import ClusterRefused
from k8spilot.gpu import listener
from k8spilot.gpu.attempts import Attempt
from k8spilot.gpu.listener import UID
from k8spilot.kube.client import Access, Api
from k8spilot.kube.watch import OwnPod
from k8spilot.observe import gpus as subject
from k8spilot.observe.gpu_families import families
from k8spilot.observe.gpus import Found, GpuMetrics
from k8spilot.settings import Settings
from lab.gpu import nvml
from tests.simulator.api_server import ApiServer
from tests.simulator.ephemeral import Ephemerals, Spec
from tests.simulator.images import REGISTRY

UUIDS = [f"GPU-{number}f9c2d75-0000-4000-8000-000000000000" for number in range(4)]
FOLDER = "/k8spilot-gpu-metrics"
NODE = FOLDER

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="samplers run under a uid of their own, for which it takes root"
)


@dataclass
class Node:
    """A pod on a node with four GPUs, and a driver."""

    server: ApiServer
    kubelet: Ephemerals
    stub: nvml.Stub
    folder: Path
    pod: OwnPod
    told: list[str] = field(default_factory=list)
    age: float | None = None

    def metrics(self) -> GpuMetrics:
        """What an engine would have."""
        settings = Settings(
            pod_name="pilot",
            pod_namespace="pilots",
            services=("engine",),
            gpu_metrics=self.folder,
            gpu_sample_seconds=0.1,
        )
        return GpuMetrics(settings, self.pod, lambda: f"{REGISTRY}/k8spilot:test", self.told.append, lambda: self.age)

    @asynccontextmanager
    async def measured(self, found: Found, metrics: GpuMetrics | None = None) -> AsyncIterator[GpuMetrics]:
        """An engine measures."""
        metrics = metrics or self.metrics()
        task = asyncio.create_task(metrics.run(found))
        try:
            yield metrics
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    def containers(self) -> list[str]:
        """Names in the pod's spec."""
        return [one["name"] for one in self.server.pod["spec"].get("ephemeralContainers", [])]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub's."""
    folder = Path(tempfile.mkdtemp(prefix="gm-"))
    folder.chmod(0o755)
    nvml.build(folder / nvml.LIBRARY)
    return folder / nvml.LIBRARY


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "REPORT_SECONDS", 1.0)
    monkeypatch.setattr(subject, "_PAUSES", (0.0, 0.1, 0.1))


@pytest.fixture
async def node(library: Path) -> AsyncIterator[Node]:
    with tempfile.TemporaryDirectory(prefix="gm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        volume = folder / "volume"
        volume.mkdir(mode=0o777)
        stub = nvml.Stub(library, folder / "settings")
        write(stub, nvml.Driver([nvml.h200(number, uuid) for number, uuid in enumerate(UUIDS)]))
        server = ApiServer(pod(volume))
        async with AsyncExitStack() as parts:
            await parts.enter_async_context(server.serve())
            kubelet = Ephemerals(server, lambda _: stub.environment)
            own = OwnPod(await parts.enter_async_context(Api(Access(server.url))), "pilots", "pilot")
            for work in (kubelet.run(), own.follow()):
                task = asyncio.create_task(work)
                parts.push_async_callback(asyncio.wait, [task])
                parts.callback(task.cancel)
            await own.until(lambda pod: pod)
            yield Node(server, kubelet, stub, volume, own)


def write(stub: nvml.Stub, driver: nvml.Driver) -> None:
    """As Stub.write, which keeps what it wrote beside a library that is shared here."""
    fresh = stub.settings.with_suffix(".new")
    fresh.write_text(nvml.render(driver))
    fresh.chmod(0o644)
    fresh.replace(stub.settings)


def pod(volume: Path, **spec: Any) -> dict[str, Any]:
    pilot = {"name": "pilot", "image": "k8spilot", "volumeMounts": [{"name": "gpu-metrics", "mountPath": str(volume)}]}
    return {
        "metadata": {"name": "pilot", "namespace": "pilots", "uid": "6f1f7e53-0000-4000-8000-000000000000"},
        "spec": {"initContainers": [{"name": "payload"}], "containers": [pilot], **spec},
        "status": {},
    }


def driver(**of_each: Any) -> nvml.Driver:
    found = nvml.Driver([nvml.h200(number, uuid) for number, uuid in enumerate(UUIDS)])
    for gpu in found.gpus:
        for name, value in of_each.items():
            setattr(gpu, name, value)
    return found


async def eventually(look: Callable[[], object], what: str, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not look():
            assert what
            await asyncio.sleep(0.05)


TWO = Found("variable", UUIDS[:2], UUIDS[:2])


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
    found.gpus[0].busy(80)
    found.gpus[0].used_bytes = 3000 * nvml.MIB
    found.gpus[2].busy(100)
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
        reader = metrics.meter.reader()
        write(node.stub, driver(used_bytes=70_000 * nvml.MIB))
        await asyncio.sleep(0.25)
        write(node.stub, driver(used_bytes=10 * nvml.MIB))
        await asyncio.sleep(1.5)
        assert {one.peak for one in reader.read()} == {70_000 * nvml.MIB}


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
    async with node.measured(Found("cdi", (), UUIDS[:1])) as metrics:
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
    async with node.measured(Found("volume-mounts", UUIDS[:2], UUIDS[:2])) as metrics:
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
        container = metrics._container(Attempt(",".join(UUIDS[:2]), ""), "gpu-metrics-1", "gpu-metrics")
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
    assert "component gpu-metrics" in node.told[0]
    assert node.containers() == []


async def test_a_volume_that_the_job_has_too_is_not_trusted(node: Node) -> None:
    mount = {"name": "gpu-metrics", "mountPath": "/tmp"}
    await node.server.update(lambda pod: pod["spec"]["initContainers"][0].update(volumeMounts=[mount]))
    await node.pod.until(lambda pod: pod["spec"]["initContainers"][0].get("volumeMounts"))
    async with node.measured(TWO):
        await eventually(lambda: node.told, "it is told")
    assert "the payload container has the volume" in node.told[0]
    assert node.containers() == []


async def test_gpus_of_a_resource_claim_are_not_measured_and_it_is_said(node: Node) -> None:
    def change(pod: dict[str, Any]) -> None:
        pod["spec"]["initContainers"][0]["resources"] = {"claims": [{"name": "gpu"}]}

    await node.server.update(change)
    await node.pod.until(lambda pod: pod["spec"]["initContainers"][0].get("resources"))
    async with node.measured(Found("cdi", (), UUIDS[:1])):
        await eventually(lambda: node.told, "it is told")
    assert "ResourceClaim" in node.told[0]
    assert node.containers() == []


async def test_a_pod_without_gpus_has_no_container_and_says_nothing(node: Node) -> None:
    async with node.measured(Found("none", (), ())) as metrics:
        await asyncio.sleep(0.2)
        assert metrics.meter is None
    assert node.containers() == node.told == []


async def test_a_driver_that_is_loaded_anew_is_followed_and_nothing_is_zero_meanwhile(node: Node) -> None:
    write(node.stub, driver(utilisation=[(0.0, 50.0)]))
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].known > 1, "figures")
        gone = driver()
        gone.failures = {"*": nvml.DRIVER_NOT_LOADED}
        gone.epoch = 2
        write(node.stub, gone)
        assert metrics.meter is not None
        gpu = metrics.meter.gpus[UUIDS[0]]
        await eventually(lambda: gpu.last is not None and gpu.last.fault, "the fault is told")
        assert gpu.last is not None
        assert gpu.last.memory is None
        known = gpu.known
        await asyncio.sleep(1)
        assert gpu.known == pytest.approx(known, abs=0.5)
        back = driver(utilisation=[(0.0, 50.0)])
        back.epoch = 2
        write(node.stub, back)
        await eventually(lambda: gpu.known > known + 1, "figures again", seconds=30)
        assert gpu.busy / gpu.known == pytest.approx(0.5, abs=0.02)
    assert node.containers() == ["gpu-metrics-1"]


async def test_a_lost_gpu_is_unknown_and_the_others_are_measured_on(node: Node) -> None:
    write(node.stub, driver(utilisation=[(0.0, 50.0)]))
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].known > 1, "figures")
        lost = driver(utilisation=[(0.0, 50.0)])
        lost.gpus[0].failures = {"*": nvml.GPU_IS_LOST}
        write(node.stub, lost)
        assert metrics.meter is not None
        first, second = metrics.meter.gpus.values()
        await eventually(lambda: first.last is not None and first.last.fault, "the fault is told")
        known, other = first.known, second.known
        await eventually(lambda: second.known > other + 2, "the other goes on")
        assert first.known == pytest.approx(known, abs=0.5)
        assert first.last is not None
        assert first.last.memory is None
    assert node.told == []


@pytest.mark.parametrize(
    "failing", [("nvmlDeviceGetSamples",), ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates")]
)
async def test_a_driver_without_utilisation_gives_what_it_has(node: Node, failing: tuple[str, ...]) -> None:
    lacking = driver(utilisation=[(0.0, 50.0)], used_bytes=nvml.MIB)
    lacking.failures = dict.fromkeys(failing, nvml.NOT_SUPPORTED)
    write(node.stub, lacking)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        assert metrics.meter is not None
        reader = metrics.meter.reader()
        await asyncio.sleep(2)
        usage = reader.read()[0]
    assert usage.peak == nvml.MIB
    if len(failing) == 1:
        assert usage.busy == pytest.approx(1.0, rel=0.1)
    else:
        assert usage.busy is None


@pytest.mark.parametrize("gpm", [True, False])
async def test_a_mig_device_has_figures_of_its_own(node: Node, gpm: bool) -> None:
    mig = "MIG-0caf1234-0000-4000-8000-000000000000"
    found = driver()
    found.gpus[0].instances = [nvml.slice_of_h200(0, mig)]
    found.gpus[0].instances[0].used_bytes = 5 * nvml.MIB
    found.gpus[0].instances[0].utilisation = [(0.0, 40.0)]
    found.gpus[0].gpm = gpm
    write(node.stub, found)
    async with node.measured(Found("variable", (mig,), (mig,))) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[mig].last is not None, "figures")
        assert metrics.meter is not None
        gpu = metrics.meter.gpus[mig]
        last = gpu.last
        assert last is not None
        assert last.memory == 5 * nvml.MIB
        if gpm:
            await eventually(lambda: gpu.known > 1, "GPM tells")
            assert gpu.busy / gpu.known == pytest.approx(0.4, abs=0.02)
        else:
            assert last.busy is None


@pytest.mark.parametrize("code", [nvml.NO_PERMISSION, nvml.UNKNOWN, nvml.TIMEOUT])
@pytest.mark.parametrize("failing", ["nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"])
async def test_a_mig_device_whose_utilisation_fails_has_its_memory_all_the_same(
    node: Node, failing: str, code: int
) -> None:
    mig = "MIG-0caf1234-0000-4000-8000-000000000000"
    found = driver()
    found.gpus[0].instances = [nvml.slice_of_h200(0, mig)]
    found.gpus[0].instances[0].used_bytes = 5 * nvml.MIB
    found.failures = {failing: code}
    write(node.stub, found)
    async with node.measured(Found("variable", (mig,), (mig,))) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[mig].last is not None, "figures")
        await asyncio.sleep(1.5)  # the first reading of all is the same for all
        assert metrics.meter is not None
        gpu = metrics.meter.gpus[mig]
        assert gpu.last is not None
        assert (gpu.last.busy, gpu.last.memory, gpu.last.fault) == (None, 5 * nvml.MIB, "")
        if code != nvml.NO_PERMISSION:
            found.failures = {}
            write(node.stub, found)
            await eventually(lambda: gpu.known > 1, "GPM tells")


async def test_a_device_of_which_nothing_can_be_read_is_faulty(node: Node) -> None:
    found = driver()
    found.failures = {"nvmlDeviceGetSamples": nvml.UNKNOWN} | dict.fromkeys(
        ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"), nvml.NOT_SUPPORTED
    )
    write(node.stub, found)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].last is not None, "figures")
        assert metrics.meter is not None
        last = metrics.meter.gpus[UUIDS[0]].last
        assert last is not None
        assert "Unknown" in last.fault


@pytest.mark.parametrize(("version", "tells"), [("535.104.05", False), ("535.113.01", True)])
async def test_who_uses_a_gpu_is_not_known_of_a_driver_that_does_not_tell(
    node: Node, version: str, tells: bool
) -> None:
    found = driver()
    found.version = version
    found.gpus[0].processes = [nvml.Process(os.getpid(), nvml.MIB, 50)]
    write(node.stub, found)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].last is not None, "figures")
        assert metrics.meter is not None
        told = {one.name: one.samples for one in families(metrics.meter, True, lambda pid: pid == os.getpid())}
    names = [f"k8spilot_gpu_job_{name}" for name in ("processes", "memory_bytes")]
    values = [{one.labels["gpu"]: one.value for one in told[name]} for name in names]
    assert values == ([{UUIDS[0]: 1, UUIDS[1]: 0}, {UUIDS[0]: nvml.MIB, UUIDS[1]: 0}] if tells else [{}, {}])


async def test_a_sampler_that_falls_silent_is_noticed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_SILENT_SECONDS", 2.0)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        process = node.kubelet.processes["gpu-metrics-1"]
        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: not metrics.up, "it is noticed")
        assert metrics.meter is not None
        assert all(gpu.last is None for gpu in metrics.meter.now())
        process.send_signal(signal.SIGCONT)
        await eventually(lambda: metrics.up, "it goes on")
    assert node.containers() == ["gpu-metrics-1"]


async def test_who_reads_the_figures_goes_on_when_the_measuring_begins_again(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        assert metrics.meter is not None
        reader = metrics.meter.reader()
    async with node.measured(TWO, metrics):
        await eventually(lambda: metrics.up, "the sampler again")
        await eventually(lambda: [one for one in reader.read() if one.busy is not None], "figures")


def connected(folder: Path) -> socket.socket:
    """As a process of the sampler's container could."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(5)
    os.seteuid(UID)
    try:
        connection.connect(str(folder / "sampler.sock"))
    finally:
        os.seteuid(0)
    return connection


HELLO = {"hello": 1, "driver": "1", "devices": UUIDS, "fault": ""}
ONE = {"busy": 1.0, "known": 2.0, "memory": 1, "peak": 1, "total": 1, "processes": [], "fault": ""}


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"[]",
        {},
        {"seconds": 5.0, "fault": "", "devices": {"GPU-1\nSTART = True": ONE}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "busy": 3.0}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "known": 1e9, "busy": 1e9}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "memory": 2**62}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "memory": -1}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "more": 1}}},
        {"seconds": 5.0, "fault": "x" * 10_000, "devices": {}},
        b'{"seconds": NaN, "fault": "", "devices": {}}',
    ],
)
async def test_nonsense_is_not_believed_and_cuts_the_sampler_off(
    node: Node, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = node.metrics()
    listening = asyncio.Event()

    async def keep(*_: Any) -> None:
        listening.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(metrics, "_keep", keep)
    async with node.measured(TWO, metrics):
        await listening.wait()
        connection = connected(node.folder)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, json.dumps(HELLO).encode())
        assert await loop.sock_recv(connection, 16) == b"go"
        await loop.sock_sendall(connection, said if isinstance(said, bytes) else json.dumps(said).encode())
        assert await loop.sock_recv(connection, 16) == b""
        assert metrics.meter is not None
        assert all(gpu.known == 0 and gpu.last is None for gpu in metrics.meter.now())
        connection.close()


async def test_nobody_but_the_sampler_can_connect_or_put_anything_there(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                connection.connect(str(node.folder / "sampler.sock"))
            with pytest.raises(PermissionError):
                (node.folder / "more").write_text("")
        finally:
            os.seteuid(0)
            connection.close()
        os.seteuid(UID)
        try:
            with pytest.raises(PermissionError):
                (node.folder / "more").write_text("")
        finally:
            os.seteuid(0)


async def test_htcondors_monitor_gets_an_ad_for_each_gpu(node: Node) -> None:
    write(node.stub, driver(utilisation=[(0.0, 25.0)], used_bytes=100 * nvml.MIB))
    node.age = 100.0
    async with node.measured(TWO) as metrics:
        app = web.Application()
        app.add_routes(metrics.routes)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        await eventually(lambda: metrics.up, "a sampler")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/k8spilot/gpu/monitor") as answer,
        ):
            text = b""
            async with asyncio.timeout(20):
                while text.count(b"- GPUsSlot1") < 3:
                    text += await answer.content.readany()
        await runner.cleanup()
    lines = text.decode().splitlines()
    assert lines[0] == (
        f'SlotMergeConstraint = StringListMember("{UUIDS[0][:12]}", AssignedGPUs) || '
        f'StringListMember("{UUIDS[0]}", AssignedGPUs)'
    )
    assert "UptimeGPU1MemoryPeakUsage = 100" in lines
    assert "- GPUsSlot1 update:true" in lines
    busy = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("UptimeGPU0Seconds")]
    assert sum(busy[1:]) / (len(busy) - 1) == pytest.approx(0.25, rel=0.2)
