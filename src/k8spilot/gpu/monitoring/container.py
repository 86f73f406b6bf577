"""The GPUs' figures: an ephemeral container that measures them, its life, and who gets what it says.

The pilot container has no GPU; the payload container has, and runs images of users. So one more container is added to
the pod, once, with this image and the same devices. Nothing of a pod's ephemeral containers can be changed or taken
away, so there are at most three in a pod's life, whatever happens to the engine meanwhile: the pod's own spec counts.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from k8spilot.common import engine_api
from k8spilot.common.errors import ClusterError, ClusterRefused
from k8spilot.gpu.monitoring import monitor_output
from k8spilot.gpu.monitoring.device_access import VISIBLE, Attempt, Hopeless, attempts
from k8spilot.gpu.monitoring.meter import Meter
from k8spilot.gpu.monitoring.protocol import Figures, Hello
from k8spilot.gpu.monitoring.sampler import UNWANTED
from k8spilot.gpu.monitoring.server import UID, SamplerServer
from k8spilot.kube.backoff import BackOff
from k8spilot.kube.ephemeral import Ephemeral, Forbidden, add, ephemerals
from k8spilot.kube.own_pod import OwnPod
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

PREFIX: Final = "gpu-metrics-"
"""Begins the names of the ephemeral containers; a number follows."""
MOST: Final = 3
"""Ephemeral containers in a pod's life."""
REPORT_SECONDS: Final = 10.0
"""How often HTCondor is told."""

_START_SECONDS: Final = 180.0
"""How long a container may wait for its start: the image is on the node already."""
_SILENT_SECONDS: Final = 600.0
"""One that says nothing for so long hangs, in the driver for one."""
_LOOK_SECONDS: Final = 30.0
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun", "CreateContainerError", "RunContainerError"})
_FAULTY_SECONDS: Final = 600.0
"""A driver that was renewed is not the one whose library a container has got: it needs another container."""
_PAUSES: Final = (0.0, 30.0, 300.0)
"""Before the first container, the second, the third, unless the one before could not have the devices at all."""


@dataclass(frozen=True, slots=True)
class MonitoredGpus:
    """The pod's GPUs, as the discovery has found them."""

    strategy: str
    """How the payload container got them (gpu/discovery/verdict.py)."""
    expected: Sequence[str]
    """Their ids, as it was told."""
    uuids: Sequence[str]
    """Those that jobs may have, by NVML's names, in the order in which jobs see them."""


class GpuMetrics:
    """Measures the GPUs of the pod."""

    def __init__(
        self,
        settings: Settings,
        pod: OwnPod,
        image: Callable[[], str],
        tell: Callable[[str], None],
        age: Callable[[], float | None],
    ) -> None:
        """Make it.

        Args:
            settings: of the pilot.
            pod: the own one.
            image: reference of our own image, by digest.
            tell: is told once why there are no figures.
            age: for how many seconds the job has run; None where none does.
        """
        self._settings = settings
        self._pod = pod
        self._image = image
        self._tell = tell
        self._found: MonitoredGpus | None = None
        self.meter: Meter | None = None
        """The devices' figures, once there are devices."""
        self.up = False
        """Whether a sampler tells of them now."""
        self._there = asyncio.Event()
        self._useless: dict[str, str] = {}
        """Containers that measure no more, and why."""
        self._unstarted: set[str] = set()
        self._verdict = ""
        """What is wrong with the sampler that said hello last."""
        self._faulty_since: float | None = None
        self._age = age
        self.routes = [web.get(engine_api.GPU_MONITOR, self._monitor)]

    async def run(self, found: MonitoredGpus) -> None:
        """Measure until cancelled, or until that turns out to be impossible."""
        if not found.uuids:
            return
        self._found = found
        if self.meter is None:  # after a fault this is run again, and who reads goes on reading
            self.meter = Meter(found.uuids, asyncio.get_running_loop().time)
        self._there.set()
        folder = self._settings.gpu_metrics
        volume = self._volume(folder)
        if volume is None:
            self._give_up(
                f"the pilot has no volume at {folder}, over which they would come; use the pod of k8spilot's manifests"
            )
            return
        if self._others_have(volume):
            self._give_up(
                f"another container has the volume {volume}, too, and jobs could put figures of their own there"
            )
            return
        async with SamplerServer(folder, self._judge, self._take, self._lost):
            await self._keep(found, volume)
            await asyncio.Event().wait()  # the kubelet may yet start one that it could not

    async def _keep(self, found: MonitoredGpus, volume: str) -> None:
        """Have a container that measures, as long as there may be another one."""
        payload = self._settings.payload_container
        ways = attempts(found.strategy, found.expected, found.uuids, self._pod.pod, payload)
        if isinstance(ways, Hopeless):
            self._give_up(ways.words)
            return
        while True:
            there = ephemerals(self._pod.pod, PREFIX)
            if there and there[-1].name not in self._useless:
                await self._follow(there[-1].name)
                continue
            hopeless = {one.environment.get(VISIBLE) for one in there if self._is_hopeless(one)}
            way = next((one for one in ways if one.visible not in hopeless), None)
            if way is None or len(there) >= MOST:
                self._give_up(self._why(there, ways[-1]))
                return
            if there and not self._is_hopeless(there[-1]):
                await asyncio.sleep(_PAUSES[len(there)])
            if not await self._add(way, f"{PREFIX}{len(there) + 1}", volume):
                return

    async def _add(self, way: Attempt, name: str, volume: str) -> bool:
        """Add a container, and wait until it is seen in the pod; False if that is not to be."""
        back_off = BackOff(2.0, 300.0)
        asked = self._container(way, name, volume)
        while True:
            try:
                # One whose answer was lost is there by now, and asked for again it changes nothing.
                await add(self._pod, asked)
                break
            except Forbidden as error:
                self._give_up(
                    "the pilot may not add a container to its pod: give its Role the verb patch of "
                    f"pods/ephemeralcontainers, as the component gpu-metrics does ({error})"
                )
                return False
            except ClusterRefused as error:
                if await self._is_there(name):
                    break
                self._give_up(
                    "the cluster takes no ephemeral container in the pod; see which policy of the namespace is against "
                    f"it ({error})"
                )
                return False
            except ClusterError as error:
                pause = back_off.delay(error)
                logger.warning("The GPU sampler's container cannot be added: %s; trying again in %.0f s.", error, pause)
                await asyncio.sleep(pause)
        logger.info("Ephemeral container %s measures the GPUs, with NVIDIA_VISIBLE_DEVICES=%s.", name, way.visible)
        await self._pod.until(lambda pod: _named(pod, name))
        return True

    async def _is_there(self, name: str) -> bool:
        """Whether an engine before this one has just added that container: it died, and its PATCH came late."""
        with suppress(ClusterError):
            await self._pod.refresh()
        return _named(self._pod.pod, name) is not None

    def _container(self, way: Attempt, name: str, volume: str) -> dict[str, Any]:
        """What is added. Its root file system can be written to, by it alone: NVIDIA's hooks write there, too."""
        folder = str(self._settings.gpu_metrics)
        mounts = [(volume, folder), *way.mounts]
        return {
            "name": name,
            "image": self._image(),
            "imagePullPolicy": "IfNotPresent",
            "command": [sys.executable, "-P", "-m", "k8spilot.gpu.monitoring.sampler", folder],
            "args": [f"{self._settings.gpu_sample_seconds:g}"],
            "env": [{"name": key, "value": value} for key, value in way.environment.items()],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": one, "mountPath": path} for one, path in mounts],
            "securityContext": {
                "runAsUser": UID,
                "runAsGroup": UID,
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }

    async def _follow(self, name: str) -> None:
        """Wait until the container `name` is of no use any more."""
        loop = asyncio.get_running_loop()
        seen = await self._until(name, _START_SECONDS, lambda one: one.running or one.ended)
        if seen is None or not (seen.running or seen.ended):
            self._useless[name] = "it did not start: " + (seen.words if seen is not None else "")
            self._unstarted.add(name)
            logger.warning("The GPU sampler %s is of no use: %s.", name, self._useless[name])
            return
        last = loop.time()
        while not seen.ended:
            later = await self._until(name, _LOOK_SECONDS, lambda one: one.ended)
            seen = later or seen
            last = loop.time() if self.up else last
            if not seen.ended and loop.time() - last > _SILENT_SECONDS:
                self._useless[name] = "it runs, and says nothing"
                break
        else:
            self._useless[name] = self._verdict or seen.words or "it has ended"
            self._verdict = ""
        logger.warning("The GPU sampler %s is of no use any more: %s.", name, self._useless[name])

    async def _until(self, name: str, seconds: float, wanted: Callable[[Ephemeral], bool]) -> Ephemeral | None:
        """How the container is, once it is so, or at the end of that time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._pod.until(
                    lambda pod: one if (one := _named(pod, name)) is not None and wanted(one) else None
                )
        except TimeoutError:
            return _named(self._pod.pod, name)

    def _is_hopeless(self, one: Ephemeral) -> bool:
        """Whether what it was told does not get the devices: then the same again would not, either."""
        return one.status == UNWANTED or one.reason in _NOT_STARTED or one.name in self._unstarted

    def _why(self, there: Sequence[Ephemeral], way: Attempt) -> str:
        last = there[-1]
        words = self._useless.get(last.name) or last.words
        if self._is_hopeless(last):
            return f"the container {last.name} does not get them ({words}); an administrator can {way.help}"
        return (
            f"{len(there)} containers that measured them have ended, the last one so: {words}; a new pod has new ones"
        )

    def _give_up(self, words: str) -> None:
        """Say so, once."""
        words = f"The GPUs' use is not measured, and not known to HTCondor: {words}."
        logger.warning("%s", words)
        self._tell(words)

    def _volume(self, folder: Path) -> str | None:
        """The volume that the engine has at `folder`."""
        mounts = self._mounts(without=self._settings.payload_container)
        return next((str(one["name"]) for one in mounts if one["mountPath"] == str(folder)), None)

    def _others_have(self, volume: str) -> bool:
        """Whether anybody but the engine has it: jobs could put figures of their own there."""
        return [mount["name"] for mount in self._mounts()].count(volume) != 1

    def _mounts(self, without: str = "") -> list[dict[str, Any]]:
        """What the pod's containers have mounted, but for those that came later."""
        spec = self._pod.pod["spec"]
        every = (*spec.get("initContainers", []), *spec["containers"])
        return [mount for one in every if one["name"] != without for mount in one.get("volumeMounts", [])]

    # --- what samplers say ---

    def _judge(self, hello: Hello) -> bool:
        """Whether the sampler sees the pod's GPUs, all of them: figures of others would be somebody else's."""
        assert self._found is not None
        missing = [uuid for uuid in self._found.uuids if uuid not in hello.devices]
        if missing:
            sees = f"it sees {len(hello.devices)} devices, but not {', '.join(missing)}"
            self._verdict = f"{sees}: {hello.fault}" if hello.fault else sees
            return False
        logger.info("The GPU sampler sees the pod's %d devices, driver %s.", len(self._found.uuids), hello.driver)
        self.up, self._faulty_since = True, None
        return True

    def _take(self, figures: Figures) -> bool:
        assert self.meter is not None
        now = asyncio.get_running_loop().time()
        self.meter.take(figures)
        faults = {one.fault for uuid, one in figures.devices.items() if uuid in self.meter.gpus}
        broken = bool(figures.fault) or ("" not in faults)
        if not broken:
            self._faulty_since = None
        elif self._faulty_since is None:
            self._faulty_since = now
            logger.warning("The GPUs cannot be measured now: %s.", figures.fault or ", ".join(sorted(faults)))
        if broken and self._faulty_since is not None and now - self._faulty_since > _FAULTY_SECONDS:
            self._verdict = figures.fault or "its devices are all lost"
            return False
        return True

    def _lost(self) -> None:
        self.up = False
        if self.meter is not None:
            self.meter.lose()

    # --- who asks ---

    async def _monitor(self, request: web.Request) -> web.StreamResponse:
        """GET /k8spilot/gpu/monitor: what HTCondor's monitor prints, for as long as it listens."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await self._there.wait()
        assert self.meter is not None
        reader, pace = self.meter.reader(), monitor_output.Pace()
        order = list(self.meter.gpus)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            age = self._age()
            usages = reader.read(age)
            text = monitor_output.blocks(usages, order, update=pace.due(usages, age, loop.time()))
            if text:
                try:
                    await response.write(text.encode())
                except ConnectionError:  # the startd has ended
                    return response


def _named(pod: dict[str, Any], name: str) -> Ephemeral | None:
    return next((one for one in ephemerals(pod, PREFIX) if one.name == name), None)
