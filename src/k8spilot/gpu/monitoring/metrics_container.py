"""The GPU metrics container, which measures the GPUs: an ephemeral container with its life, or the manifest's sidecar.

The pilot container has no GPU. The payload container has the GPUs, but runs images of users. So the engine adds one
more container to the pod, with the pilot's image and the same devices. Kubernetes cannot change or remove it. So a pod
has at most three in its life. The engine counts them in the pod's spec, so that its restarts do not matter.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from k8spilot.common import pilot_api
from k8spilot.common.errors import ClusterError, ClusterRefused
from k8spilot.gpu.monitoring import monitor_output
from k8spilot.gpu.monitoring.device_access import VISIBLE, DeviceRequest, Unavailable, device_requests
from k8spilot.gpu.monitoring.meter import Meter
from k8spilot.gpu.monitoring.protocol import Figures, Hello
from k8spilot.gpu.monitoring.sampler import UNWANTED
from k8spilot.gpu.monitoring.sampler_server import UID, SamplerServer
from k8spilot.gpu.monitoring.sampler_state import ContainerEnd, Sampler, SamplerEvent
from k8spilot.gpu.monitoring.sampler_volume import SIDECAR, holders, volume_at
from k8spilot.kube.backoff import BackOff
from k8spilot.kube.ephemeral import Ephemeral, Forbidden, add, ephemerals
from k8spilot.kube.own_pod import OwnPod
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

PREFIX: Final = "gpu-metrics-"
"""Prefix of the ephemeral containers' names; a number follows."""
MOST: Final = 3
"""Limit of ephemeral containers in a pod's life."""
REPORT_SECONDS: Final = 10.0
"""Seconds between reports to HTCondor."""

_START_SECONDS: Final = 180.0
"""Limit of a container's start. The image is on the node already."""
_SILENT_SECONDS: Final = 600.0
"""Silence after which a container counts as hung, for example in the driver."""
_CHECK_SECONDS: Final = 30.0
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun", "CreateContainerError", "RunContainerError"})
_FAULTY_SECONDS: Final = 600.0
"""Seconds of faults after which the container is replaced: a container keeps the library of the driver at its start."""
_PAUSES: Final = (0.0, 30.0, 300.0)
"""Pauses in seconds before the first, second and third container. A container that could not get the devices at all
is replaced at once."""


@dataclass(frozen=True, slots=True)
class MonitoredGpus:
    """The pod's GPUs, from the discovery."""

    strategy: str
    """Strategy by which the payload container got them (gpu/discovery/verdict.py)."""
    expected: Sequence[str]
    """Their ids in the payload containers' variables or mounts."""
    groups: Sequence[Sequence[str]]
    """NVML names of the GPUs of each payload container that has some, in the order in which its jobs see them."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """NVML names of all GPUs, each once."""
        return tuple(dict.fromkeys(uuid for group in self.groups for uuid in group))


class GpuMetrics:
    """Measures the GPUs of the pod."""

    def __init__(
        self,
        settings: Settings,
        pod: OwnPod,
        image: Callable[[], str],
        report: Callable[[str], None],
        age: Callable[[str], float | None],
    ) -> None:
        """Initialize without I/O.

        Args:
            settings: settings of the pilot.
            pod: the own pod.
            image: returns the reference of the pilot's image, by digest.
            report: receives one sentence if the GPUs cannot be measured.
            age: returns the age of the job on a GPU, in seconds; None without a job.
        """
        self._settings = settings
        self._pod = pod
        self._image = image
        self._report = report
        self.meter: Meter | None = None
        """Figures of the devices; None without devices."""
        self._groups: Sequence[Sequence[str]] = ()
        self._has_devices = asyncio.Event()
        self._sampler = Sampler()
        self._ends: dict[str, ContainerEnd] = {}
        """Containers that no longer measure."""
        self._age = age
        self.routes = [web.get(pilot_api.GPU_MONITOR, self._monitor)]

    @property
    def up(self) -> bool:
        """Whether a sampler is connected."""
        return self._sampler.is_connected

    async def run(self, gpus: MonitoredGpus) -> None:
        """Measure until cancelled, or until measuring turns out to be impossible."""
        if not gpus.uuids:
            return
        self._groups = gpus.groups
        if self.meter is None:  # after a fault this runs again, and readers continue
            self.meter = Meter(gpus.uuids, asyncio.get_running_loop().time)
        self._has_devices.set()
        folder = self._settings.gpu_metrics
        volume = volume_at(self._pod.pod, folder, self._settings.payload_container)
        if volume is None:
            self._give_up(
                f"the pilot has no volume at {folder} for the sampler's socket; use the pod of k8spilot's manifests"
            )
            return
        others = holders(self._pod.pod, volume)
        is_sidecar = SIDECAR in others
        if len(others) != 1 + is_sidecar:  # jobs could write figures there
            self._give_up(
                f"another container also mounts the volume {volume}, where jobs could write false figures; mount it "
                "only in the pilot"
            )
            return
        async with SamplerServer(folder, self._judge, self._take, self._lost):
            await (self._await_sidecar() if is_sidecar else self._keep(gpus, volume))
            await asyncio.Event().wait()  # the kubelet may still start a delayed container

    async def _await_sidecar(self) -> None:
        """Return when the sampler of the pod's specification is away. The kubelet starts it again and again."""
        is_up = True
        while is_up:
            await asyncio.sleep(_START_SECONDS)
            is_up = self.up
        self._give_up(
            f"the container {SIDECAR} does not get them ({self._sampler.fault or 'it sends nothing'}); see whether it "
            "runs, and give it the claims of the payload containers, as the component gpu-dra-metrics does"
        )

    async def _keep(self, gpus: MonitoredGpus, volume: str) -> None:
        """Keep a container that measures, as long as the pod may have another one."""
        payload = self._settings.slots[-1].container  # the last ones have the GPUs
        requests = device_requests(
            gpus.strategy, expected=gpus.expected, uuids=gpus.uuids, pod=self._pod.pod, payload=payload
        )
        if isinstance(requests, Unavailable):
            self._give_up(requests.reason)
            return
        while True:
            containers = ephemerals(self._pod.pod, PREFIX)
            if containers and containers[-1].name not in self._ends:
                await self._follow(containers[-1].name)
                continue
            hopeless = {container.environment.get(VISIBLE) for container in containers if self._is_hopeless(container)}
            device_request = next((one for one in requests if one.visible not in hopeless), None)
            if device_request is None or len(containers) >= MOST:
                self._give_up(self._why(containers, requests[-1]))
                return
            if containers and not self._is_hopeless(containers[-1]):
                await asyncio.sleep(_PAUSES[len(containers)])
            if not await self._add(device_request, f"{PREFIX}{len(containers) + 1}", volume):
                return

    async def _add(self, device_request: DeviceRequest, name: str, volume: str) -> bool:
        """Add a container, and wait until it is in the pod. Return whether it was added."""
        back_off = BackOff(2.0, 300.0)
        request = self._container(device_request, name, volume)
        while True:
            try:
                # A repeated request changes nothing: an answer may have been lost.
                await add(self._pod, request)
                break
            except Forbidden as error:
                self._give_up(
                    "the pilot may not add a container to its pod; give its Role the verb patch of "
                    f"pods/ephemeralcontainers, as the component gpu-metrics does ({error})"
                )
                return False
            except ClusterRefused as error:
                if await self._is_there(name):
                    break
                self._give_up(
                    "the cluster rejects an ephemeral container in the pod; check the namespace's admission policies "
                    f"({error})"
                )
                return False
            except ClusterError as error:
                pause = back_off.delay(error)
                logger.warning("The GPU metrics container cannot be added: %s; retrying in %.0f s.", error, pause)
                await asyncio.sleep(pause)
        logger.info(
            "Ephemeral container %s measures the GPUs, with NVIDIA_VISIBLE_DEVICES=%s.", name, device_request.visible
        )
        await self._pod.until(lambda pod: _named(pod, name))
        return True

    async def _is_there(self, name: str) -> bool:
        """Return whether an earlier engine added the container: that engine died, and its PATCH arrived late."""
        with suppress(ClusterError):
            await self._pod.refresh()
        return _named(self._pod.pod, name) is not None

    def _container(self, device_request: DeviceRequest, name: str, volume: str) -> dict[str, Any]:
        """Return the container to add. Its root file system is writable, because NVIDIA's hooks write there."""
        folder = str(self._settings.gpu_metrics)
        mounts = [(volume, folder), *device_request.mounts]
        return {
            "name": name,
            "image": self._image(),
            "imagePullPolicy": "IfNotPresent",
            "command": [sys.executable, "-P", "-m", "k8spilot.gpu.monitoring.sampler", folder],
            "args": [f"{self._settings.gpu_sample_seconds:g}"],
            "env": [{"name": key, "value": value} for key, value in device_request.environment.items()],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": name_, "mountPath": path} for name_, path in mounts],
            "securityContext": {
                "runAsUser": UID,
                "runAsGroup": UID,
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }

    async def _follow(self, name: str) -> None:
        """Wait until the container `name` no longer measures."""
        loop = asyncio.get_running_loop()
        state = await self._until(name, _START_SECONDS, lambda container: container.running or container.ended)
        if state is None or not (state.running or state.ended):
            reason = "it did not start: " + (state.summary if state is not None else "")
            self._ends[name] = ContainerEnd(reason, has_started=False)
            logger.warning("The GPU metrics container %s does not measure: %s.", name, reason)
            return
        last = loop.time()
        while not state.ended:
            newer = await self._until(name, _CHECK_SECONDS, lambda container: container.ended)
            state = newer or state
            last = loop.time() if self.up else last
            if not state.ended and loop.time() - last > _SILENT_SECONDS:
                reason = "it runs, but sends nothing"
                break
        else:
            reason = self._sampler.take_fault() or state.summary or "it has ended"
        self._ends[name] = ContainerEnd(reason)
        logger.warning("The GPU metrics container %s no longer measures: %s.", name, reason)

    async def _until(self, name: str, seconds: float, wanted: Callable[[Ephemeral], bool]) -> Ephemeral | None:
        """Return the container once it is in the state `wanted`, or at the end of that time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._pod.until(
                    lambda pod: (
                        container if (container := _named(pod, name)) is not None and wanted(container) else None
                    )
                )
        except TimeoutError:
            return _named(self._pod.pod, name)

    def _is_hopeless(self, container: Ephemeral) -> bool:
        """Return whether the container's configuration cannot get the devices, so that a repetition would fail, too."""
        end = self._ends.get(container.name)
        did_not_start = container.reason in _NOT_STARTED or (end is not None and not end.has_started)
        return container.status == UNWANTED or did_not_start

    def _why(self, containers: Sequence[Ephemeral], device_request: DeviceRequest) -> str:
        last = containers[-1]
        end = self._ends.get(last.name)
        message = end.reason if end is not None else last.summary
        if self._is_hopeless(last):
            return (
                f"the container {last.name} does not get them ({message}); an administrator can {device_request.help}"
            )
        return (
            f"{len(containers)} containers that measured them have ended, the last one with: {message}; a new pod "
            "starts again with the first"
        )

    def _give_up(self, message: str) -> None:
        """Log and report, once, that the GPUs are not measured."""
        message = f"The GPUs' utilization is not measured, and HTCondor does not know it: {message}."
        logger.warning("%s", message)
        self._report(message)

    # --- messages of samplers ---

    def _judge(self, hello: Hello) -> bool:
        """Return whether the sampler sees all of the pod's GPUs. Figures of other GPUs would belong to other pods."""
        assert self.meter is not None
        missing = [uuid for uuid in self.meter.gpus if uuid not in hello.devices]
        if missing:
            sees = f"it sees {len(hello.devices)} devices, but not {', '.join(missing)}"
            self._sampler.fault = f"{sees}: {hello.fault}" if hello.fault else sees
            return False
        logger.info("The GPU sampler sees the pod's %d devices, driver %s.", len(self.meter.gpus), hello.driver)
        self._sampler.handle(SamplerEvent.ACCEPT, asyncio.get_running_loop().time())
        return True

    def _take(self, figures: Figures) -> bool:
        assert self.meter is not None
        now = asyncio.get_running_loop().time()
        self.meter.take(figures)
        faults = {device.fault for uuid, device in figures.devices.items() if uuid in self.meter.gpus}
        is_faulty = bool(figures.fault) or ("" not in faults)
        is_new = self._sampler.handle(SamplerEvent.FAULTS if is_faulty else SamplerEvent.FIGURES, now)
        if is_faulty and is_new:
            logger.warning("The GPUs cannot be measured at the moment: %s.", figures.fault or ", ".join(sorted(faults)))
        if self._sampler.faulty_seconds(now) > _FAULTY_SECONDS:
            self._sampler.fault = figures.fault or "all its devices are lost"
            return False
        return True

    def _lost(self) -> None:
        self._sampler.handle(SamplerEvent.DISCONNECT, asyncio.get_running_loop().time())
        if self.meter is not None:
            self.meter.lose()

    # --- requests of HTCondor's monitor ---

    async def _monitor(self, request: web.Request) -> web.StreamResponse:
        """Serve GET /k8spilot/gpu/monitor: the output of HTCondor's monitor, until the client disconnects."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await self._has_devices.wait()
        assert self.meter is not None
        reader, groups = self.meter.reader(), self._groups
        intervals = [(group, monitor_output.BlockInterval()) for group in groups]
        loop = asyncio.get_running_loop()
        text = monitor_output.start(groups)
        with suppress(ConnectionError):  # the startd has ended
            while True:
                if text:
                    await response.write(text.encode())
                await asyncio.sleep(REPORT_SECONDS)
                usages = reader.read(self._age)
                due = [
                    number
                    for number, (group, interval) in enumerate(intervals)
                    if interval.due([one for one in usages if one.uuid in group], self._age(group[0]), loop.time())
                ]
                text = monitor_output.blocks(usages, groups, due)
        return response


def _named(pod: dict[str, Any], name: str) -> Ephemeral | None:
    return next((container for container in ephemerals(pod, PREFIX) if container.name == name), None)
