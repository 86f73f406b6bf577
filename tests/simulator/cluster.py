"""The whole simulation: one pod on a simulated node, and a real pilot in it."""

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from k8spilot.engine.app import EngineApp
from k8spilot.kube.client import Access, Api
from k8spilot.payload_init.install import TIDY
from k8spilot.settings import Settings
from k8spilot.supervisor.plan import GONE
from tests.simulator.api_server import ApiServer, Pod
from tests.simulator.container import own_uid
from tests.simulator.images import DEVICES, HOST, Images
from tests.simulator.kubelet import Kubelet
from tests.simulator.node import Node, Timing, Volumes
from tests.simulator.pod import CLAIM, NAME, NAMESPACE, claiming, payload_status, pilot_pod
from tests.simulator.programs import Programs

logger = logging.getLogger(__name__)


@dataclass
class Cluster:
    """The simulated node; its parts are for tests to look at and to break."""

    server: ApiServer
    kubelets: list[Kubelet]
    """One for each payload container, which take turns."""
    images: Images
    volumes: Volumes
    settings: Settings
    api: Api = field(init=False)
    pilot: EngineApp = field(init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the pilot has ended, by itself or not."""
    _running: "asyncio.Task[int] | None" = None

    @property
    def kubelet(self) -> Kubelet:
        """The one of the first payload container."""
        return self.kubelets[0]

    def all_run(self, pod: Pod) -> bool:
        """Whether the status shows all payload containers running."""
        return all("running" in payload_status(pod, slot.container)["state"] for slot in self.settings.slots)

    async def start_pilot(self) -> None:
        """Run a pilot, as the supervisor does with the engine."""
        self.ended.clear()
        self.pilot = EngineApp(self.settings, self.api, tidy=self.volumes.exchange / TIDY)
        self._running = asyncio.create_task(self.pilot.run(), name="pilot")
        self._running.add_done_callback(lambda _: self.ended.set())
        waits = [asyncio.create_task(event.wait()) for event in (self.pilot.serving, self.ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        for task in waits:
            task.cancel()
        assert not self.ended.is_set(), f"the pilot ended before it served: {self._running.exception()!r}"

    async def stop_pilot(self) -> None:
        """End it as the kubelet does."""
        assert self._running is not None
        self.pilot.stop()
        async with asyncio.timeout(10):
            status = await self._running
        assert status == (GONE if self.pilot.pod.gone else 0), f"the pilot ended with {status}"

    async def restart_pilot(self) -> None:
        """As after a crash, but tidier: the container `pilot` starts again, while `payload` runs on."""
        await self.stop_pilot()
        await self.start_pilot()

    def processes(self) -> list[str]:
        """Command lines of what runs under the payloads' uids, but payload-init itself."""
        found, uids = [], {slot.uid for slot in self.settings.slots}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                command = " ".join(process.cmdline())
                if process.uids().real in uids and "payload-init" not in command:
                    found.append(command)
        return found


@dataclass(frozen=True)
class Idle:
    """Properties of the payload container under the idle image, beside the usual ones."""

    mounts: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    """Of its resources."""
    groups: Sequence[int] = ()
    """Groups that the node gives to the container."""
    read_only: bool = False
    """Whether the spec of the payload container has a read-only root."""
    claim: Mapping[str, Any] | None = None
    """A ResourceClaim of the payload container, if any."""
    claim_refusals: Sequence[tuple[int, str]] = ()
    """Status and message with which requests for it are refused, one each."""


@asynccontextmanager
async def simulate(
    programs: Programs,
    *,
    timing: Timing | None = None,
    access: Callable[[ApiServer], Access] = lambda server: Access(server.url),
    idle: Idle | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """Run a node and a pilot.

    Args:
        programs: payload-init and the simulator's own.
        timing: of the kubelet.
        access: how the pilot gets to the API server.
        idle: what the payload container has under the idle image.
        settings: fields of Settings that are to differ from the simulator's.
    """
    folder = Path(tempfile.mkdtemp(prefix="k8spilot-"))
    folder.chmod(0o755)  # the payload's uid has to pass
    try:
        async with AsyncExitStack() as parts:
            cluster = await _put_together(programs, folder, (timing or Timing(), idle or Idle()), settings, parts)
            cluster.api = await parts.enter_async_context(Api(access(cluster.server)))
            await cluster.start_pilot()
            parts.push_async_callback(cluster.stop_pilot)
            await cluster.server.until(cluster.all_run)
            yield cluster
    finally:
        shutil.rmtree(folder)


async def _put_together(
    programs: Programs,
    folder: Path,
    node: tuple[Timing, Idle],
    changed: dict[str, Any],
    parts: AsyncExitStack,
) -> Cluster:
    timing, own = node
    uid = own_uid()
    volumes = Volumes(folder / "exchange", folder / "execute", folder / "tmp", folder / "var-tmp")
    settings = Settings(
        **{
            "pod_name": NAME,
            "pod_namespace": NAMESPACE,
            "services": ("engine",),
            "payload_uid": uid,
            "payload_gid": uid,
            "exchange": volumes.exchange,
            "socket": folder / "docker.sock",
            "execute": Path("/var/lib/condor/execute"),
            "scratch_folders": (volumes.tmp, volumes.var_tmp),
            "pull_secret": folder / "no-pull-secret",
            "gpu_metrics": folder / "gpu-metrics",  # which this pod does not have
            "metrics_port": 0,  # several run side by side
            **changed,
        }
    )
    _make_volumes(volumes, settings, programs)
    images = _make_images(folder / "registry", programs, own)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{images.programs}:{path}"  # the pilot finds `skopeo` there
    parts.callback(os.environ.__setitem__, "PATH", path)
    idle = images.find("registry.test:5000/k8spilot:test")
    assert idle is not None
    server = ApiServer(pilot_pod(idle, settings.slots, own.limits, read_only=own.read_only))
    if own.claim is not None:
        await server.update(claiming)
        server.claims[CLAIM] = dict(own.claim)
        server.claim_refusals = list(own.claim_refusals)
    await parts.enter_async_context(server.serve())
    containers = folder / "containers"
    containers.mkdir()
    local = Node(images, programs, volumes, containers, timing)
    kubelets = [Kubelet(server, local, slot) for slot in settings.slots]
    for kubelet in kubelets:
        await _run(kubelet.run(), parts)
    return Cluster(server, kubelets, images, volumes, settings)


def _make_volumes(volumes: Volumes, settings: Settings, programs: Programs) -> None:
    for path in (volumes.exchange, volumes.execute, volumes.tmp, volumes.var_tmp):
        path.mkdir()
        path.chmod(0o1777)
        for slot in settings.slots:
            (path / slot.sub_path).mkdir(exist_ok=True)
            (path / slot.sub_path).chmod(0o1777)
    volumes.exchange.chmod(0o755)
    for folder in {settings.exchange, *(slot.exchange for slot in settings.slots)}:
        shutil.copytree(programs.payload_init.parent, folder / "bin", ignore=shutil.ignore_patterns("container"))


def _make_images(folder: Path, programs: Programs, idle: Idle) -> Images:
    """The images that the lab has, too (lab/images.py), and the pilot's own."""
    images = Images(folder)
    images.add(
        "k8spilot:test",
        entrypoint=["k8spilot"],
        mounts=[*HOST, *idle.mounts],
        environment=idle.environment,
        groups=idle.groups,
    )
    images.add("busybox:latest", command=["sh"])
    images.add("debian:forky", command=["bash"])
    images.add("hello:latest", mounts=[DEVICES, f"{programs.hello}:/hello:ro"], command=["/hello"])
    return images


async def _run(work: Any, parts: AsyncExitStack) -> None:
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    parts.push_async_callback(end)
