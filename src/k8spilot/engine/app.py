"""The composition root: makes the parts of the engine, starts its tasks, and ends with its pod or when it is told to.

Order: follow the own pod, listen for payload-init, close the slot if the API server is away, see the pod, find its
GPUs, serve the Docker socket, look after HTCondor's slot. The end goes the other way round. Every task has a name, and
belongs to one group that outlives none of them. The supervisor (supervisor/supervisor.py) starts the engine as a
process of its own, and starts another one when it dies: nothing here may rely on what was before.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from k8spilot.common import engine_api, logs
from k8spilot.common.aio import restarting
from k8spilot.common.errors import PilotError, PreflightError, first_cause
from k8spilot.condor.ad_publisher import AdPublisher
from k8spilot.condor.agent_link import RemoteStartdAd, facts_route
from k8spilot.condor.daemon_logs import follow, startd_has_ended
from k8spilot.condor.folders import Folders
from k8spilot.condor.liveness import JOB_LOG, Heed, end_hanging_daemons
from k8spilot.condor.node_images import NodeImages
from k8spilot.condor.startd_ad import LocalStartdAd, StartdAd
from k8spilot.docker.pre_job import next_job
from k8spilot.docker.removal import clear_slot
from k8spilot.docker.server import listen, serve
from k8spilot.docker.store import ContainerStore
from k8spilot.engine.components import build_binder, build_image_lookup, build_scrubber, open_folders, slot_limits
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.monitoring.container import MonitoredGpus
from k8spilot.kube.client import Access, Api
from k8spilot.kube.deletion import watch_deletion
from k8spilot.kube.own_pod import OwnPod
from k8spilot.payload.container import PayloadContainer, Timeouts
from k8spilot.payload.gpu_discovery import discover
from k8spilot.payload.idle_image import IdleImage
from k8spilot.payload.listeners import Fanout, SlotListener, tell_of_outages
from k8spilot.payload.scrub.from_pilot import TIDY_OF_ROOT
from k8spilot.payload.scrub.processes import kill_outside, own_cgroup
from k8spilot.payload.scrub.scrubber import Scrubber
from k8spilot.payload_init.server import SOCKET, PayloadInitServer
from k8spilot.registry.skopeo import Registry
from k8spilot.settings import KILLING_SECONDS, MARGIN_SECONDS, Settings
from k8spilot.supervisor.supervisor import DEATHS, DOCKER_SOCKETS, DONE, GONE
from k8spilot.telemetry.service import Telemetry

logger = logging.getLogger(__name__)

_POD_SECONDS: Final = 60.0
_LAST_SECONDS: Final = 6.0
"""What HTCondor needs to kill its jobs and to tell of it."""
_PAYLOAD_SECONDS: Final = 5.0
_CLEAR_SECONDS: Final = 15.0
"""How long the end of a job is waited for under which HTCondor's daemons hang, before they are looked at again."""


class EngineApp:
    """The parts of one pilot's engine."""

    def __init__(
        self,
        settings: Settings,
        api: Api,
        cgroup: str | None = None,
        listening: Sequence[socket.socket] = (),
        end: Callable[[], None] = lambda: None,
        tidy: Path = TIDY_OF_ROOT,
    ) -> None:
        self._settings = settings
        self._tidy = tidy
        linked = None if "condor" in settings.services else RemoteStartdAd()
        self.end = end if linked is None else linked.end
        """Tells HTCondor's supervisor to end it, and with it the pilot."""
        self._linked = linked
        self._listening = listening
        """The Docker sockets, where the supervisor has them; otherwise they are made."""
        self._cgroup = cgroup
        """Of the pilot container, where nothing of the jobs' account may stay; None where that is not a container."""
        self._gpus = GpuRecord()
        self.pod = OwnPod(api, settings.pod_namespace, settings.pod_name, settings.pod_uid)
        self._idle_image = IdleImage(lambda: self.pod.pod)
        self._stop = asyncio.Event()
        self.serving = asyncio.Event()
        """Set once the engine's socket can be used."""

    def stop(self) -> None:
        """End as on SIGTERM."""
        self._stop.set()

    async def run(self) -> int:
        """Serve until the end; return the process's exit status.

        Raises:
            PilotError: it cannot.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            async with asyncio.TaskGroup() as tasks:
                follow = tasks.create_task(self._follow(), name="watch of the own pod")
                try:
                    await self._serve(tasks)
                finally:
                    follow.cancel()
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        return GONE if self.pod.gone else 0

    async def _see_pod(self) -> None:
        try:
            async with asyncio.timeout(_POD_SECONDS):
                await self.pod.until(lambda pod: pod)
        except TimeoutError:
            raise PreflightError(
                f"pod {self._settings.pod_namespace}/{self._settings.pod_name} cannot be read from the Kubernetes "
                f"API within {_POD_SECONDS:.0f} s; look at the API server, and at POD_NAME and POD_NAMESPACE"
            ) from None

    async def _follow(self) -> None:
        await self.pod.follow()
        logger.warning("The own pod is gone; the pilot ends with it.")
        if self._linked is not None:
            self._linked.end()
        self.stop()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        settings = self._settings
        open_folders(settings)
        async with AsyncExitStack() as parts:
            init_server = await parts.enter_async_context(
                PayloadInitServer(settings.exchange / SOCKET, settings.payload_uid, self._cgroup)
            )
            scrubber = build_scrubber(settings, self.pod, init_server, self._cgroup, self._tidy, parts)
            is_doubtful = await self._hear_payload(init_server)
            slot = self._linked or LocalStartdAd(Folders.of(settings), settings)
            images = NodeImages(slot, self.pod.api, settings.node_name)
            telemetry = Telemetry(
                settings, self.pod, init_server, slot, int(os.environ.get(DEATHS, "0")), self._idle_image
            )
            listener = Fanout([telemetry.recorder, AdPublisher(slot, images)])
            telling = tasks.create_task(
                restarting(partial(tell_of_outages, self.pod, listener), "telling of the API server"),
                name="notices of the API server",
            )
            parts.callback(telling.cancel)
            await self._see_pod()  # after what must not wait for an API server that is away
            telemetry.gpus = self._gpus = await self._discover(init_server, telemetry)  # before any job can come
            payload = telemetry.payload = self._payload(init_server, scrubber, tasks, listener)
            parts.callback(payload.close)
            if is_doubtful:
                payload.abandoned_pull.doubt()
            engine = ContainerStore([payload], partial(slot_limits, settings, self.pod, self._gpus), tasks, listener)
            listening = self._listening or [listen(path) for path in settings.sockets]
            routes = [*telemetry.routes, web.get(engine_api.NEXT_JOB, next_job)]
            if self._linked is not None:
                routes += [*self._linked.routes, facts_route(self._started)]
            await parts.enter_async_context(serve(engine, listening, routes, str(settings.htcondor_socket)))
            await parts.enter_async_context(telemetry.telling(tasks))
            found = self._gpus.verdict
            measured = MonitoredGpus(found.strategy, found.expected, [one.uuid for one in found.usable])
            measuring = restarting(partial(telemetry.gpu_metrics.run, measured), "measuring the GPUs")
            parts.callback(tasks.create_task(measuring, name="GPU metrics").cancel)
            self.serving.set()
            logger.info("Serving the Docker Engine API on %s.", settings.socket)
            beside_condor = self._beside_condor(slot, images, self._heeding(telemetry, engine), tasks)
            await self._stop.wait()
            for task in beside_condor:
                task.cancel()

    def _started(self) -> str:
        return str(self.pod.pod["status"]["startTime"])

    @staticmethod
    def _heeding(telemetry: Telemetry, engine: ContainerStore) -> Heed:
        """What is done with each line of HTCondor's daemons, and with what is found of them."""

        async def heed(log: str, line: str) -> None:
            await telemetry.heed(log, line)
            if log == JOB_LOG:
                # What fails is in the log, and the next job's starter has it done again. What takes long goes on.
                with contextlib.suppress(PilotError, TimeoutError):
                    async with asyncio.timeout(_CLEAR_SECONDS):
                        await clear_slot(engine, why="HTCondor's daemons hang")

        return heed

    def _beside_condor(
        self, slot: StartdAd, images: NodeImages, heeded: Heed, tasks: asyncio.TaskGroup
    ) -> list[asyncio.Task[None]]:
        """Start what goes on as long as HTCondor runs."""
        looking = tasks.create_task(restarting(images.follow, "looking at the node's images"), name="the node's images")
        if not isinstance(slot, LocalStartdAd):
            assert self._linked is not None
            self._linked.heed = heeded
            return [looking]
        is_first = os.environ.get(DEATHS, "0") == "0"

        async def heed(log: str, line: str) -> None:
            await heeded(log, line)
            await slot.heed(log, line)
            if await startd_has_ended(log, line, os.getppid()):
                logger.info("HTCondor's startd has ended for good, and the pilot ends with it.")
                self.end()

        reading = restarting(partial(follow, slot.folders, heed, before=not is_first), "reading HTCondor's logs")
        asking = restarting(
            partial(end_hanging_daemons, slot.folders, os.getppid(), heeded), "asking HTCondor's daemons"
        )
        return [
            looking,
            tasks.create_task(reading, name="HTCondor's logs"),
            tasks.create_task(asking, name="HTCondor answers"),
        ]

    async def _hear_payload(self, init_server: PayloadInitServer) -> bool:
        """Wait for payload-init: the first bind then knows which container it ends.

        An engine that follows one that died finds it between jobs: it has killed its own when the connection ended. One
        that its job has stopped has not, and never will: all that is in the payload container is killed then. Where no
        image has come to run there is nothing in it. Where no job can have come yet, nobody has stopped it: it is slow,
        and the kubelet would make a pause after its end.

        Returns:
            Whether the node may still pull for a bind of an engine before this one.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAYLOAD_SECONDS):
                await init_server.until(lambda _: True)
                return False
        killed, had_jobs = 0, self._had_jobs()
        if self._cgroup is not None and had_jobs:
            killed = kill_outside(self._settings.payload_uid, self._cgroup)
        logger.warning(
            "payload-init of container %s has not connected within %.0f s; %d processes are killed there.",
            self._settings.payload_container,
            _PAYLOAD_SECONDS,
            killed,
        )
        return had_jobs

    def _had_jobs(self) -> bool:
        """Whether a job can have come to an engine of this pod before this one: each looks for GPUs before that."""
        return os.environ.get(DEATHS, "0") != "0" or GpuRecord.load(self._settings.exchange) is not None

    async def _discover(self, init_server: PayloadInitServer, telemetry: Telemetry) -> GpuRecord:
        """Find the pod's GPUs; what is wrong with them is told once in a pod's life, and seen in the status."""
        settings = self._settings
        began = asyncio.get_running_loop().time()
        gpus, new = await discover(self.pod.pod, settings.payload_container, init_server, settings.exchange)
        if gpus.verdict.problem:
            telemetry.recorder.gpus_doubtful(gpus.words, new=new)
        seconds = asyncio.get_running_loop().time() - began
        logger.log(
            logging.WARNING if gpus.verdict.problem else logging.INFO,
            "GPUs: %s.%s",
            gpus.words,
            f" Found in {seconds:.3f} s." if new else " As found before.",
        )
        return gpus

    def _payload(
        self, init_server: PayloadInitServer, scrubber: Scrubber, tasks: asyncio.TaskGroup, listener: SlotListener
    ) -> PayloadContainer:
        settings = self._settings
        registry = Registry(settings.pull_secret if settings.pull_secret.exists() else None)
        return PayloadContainer(
            self.pod,
            build_image_lookup(settings, self.pod, registry),
            build_binder(settings, self.pod, init_server, registry, self._idle_image, self._gpus),
            scrubber,
            tasks,
            pace=Timeouts(settings.bind_timeout_seconds, settings.idle_after_seconds, settings.patience_seconds),
            listener=listener,
        )


def main() -> int:
    """Be the engine that the supervisor starts: settings from the environment, the Docker sockets as descriptors."""
    try:
        settings = Settings.from_environment()
        logs.set_up(settings.log_level, settings.log_format)
        return asyncio.run(_run(settings))
    except PilotError as error:
        logs.last_word(str(error))
        return 1


async def _run(settings: Settings) -> int:
    async with Api(Access.in_cluster()) as api:
        tell_supervisor = partial(os.kill, os.getppid())
        done = partial(tell_supervisor, DONE)
        listening = [socket.socket(fileno=end) for end in DOCKER_SOCKETS]
        app = EngineApp(settings, api, own_cgroup(), listening, end=done)
        enough = settings.vacate_seconds + KILLING_SECONDS + MARGIN_SECONDS
        # For the supervisor the kubelet's SIGTERM was the first, and a second one is in a hurry.
        again = partial(tell_supervisor, signal.SIGTERM) if "condor" in settings.services else app.end
        hurried = asyncio.create_task(
            watch_deletion(app.pod, enough=enough, last=_LAST_SECONDS, act=again), name="grace"
        )
        try:
            return await app.run()
        finally:
            hurried.cancel()
