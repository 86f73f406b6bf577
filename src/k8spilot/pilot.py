"""The composition root: makes the parts of a pilot, starts its tasks, and ends with its pod or with HTCondor.

Order: look at the surroundings, follow the own pod, listen for payload-init, serve the engine, run HTCondor.
The end goes the other way round. Every task has a name, and belongs to one group that outlives none of them.
"""

import asyncio
import grp
import logging
import os
import signal
import uuid
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final

import psutil
from kubernetes.aio.client import ApiClient

from k8spilot import surroundings
from k8spilot.condor.folders import Folders
from k8spilot.condor.master import Master
from k8spilot.condor.notices import SlotNotices
from k8spilot.condor.preparation import prepare
from k8spilot.condor.slot import SlotAd
from k8spilot.docker.server import serve
from k8spilot.docker.state import Engine
from k8spilot.docker.translate import Place
from k8spilot.errors import ClusterError, SurroundingsError, first_cause
from k8spilot.kube.client import connect
from k8spilot.kube.pod import container
from k8spilot.kube.watch import OwnPod
from k8spilot.model.reference import Reference
from k8spilot.payload.binding import Binder
from k8spilot.payload.notices import Notices
from k8spilot.payload.runner import Pace, PayloadContainer
from k8spilot.payload_init.channel import SOCKET, Listener
from k8spilot.registry import Registry
from k8spilot.sandbox import PILOT_TEMPORARY, SHARED, Scratch, own_cgroup
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

_POD_SECONDS: Final = 60.0
_PAYLOAD_SECONDS: Final = 10.0


async def run(settings: Settings) -> int:
    """Be a pilot until HTCondor ends, the pod goes, or SIGTERM comes; return the process's exit status.

    Raises:
        PilotError: it cannot be one here.
    """
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    async with connect() as api:
        await surroundings.check(settings, api)
        return await Pilot(settings, api, cgroup=own_cgroup()).run()


class Pilot:
    """The parts of one pilot."""

    def __init__(self, settings: Settings, api: ApiClient, cgroup: str | None = None) -> None:
        self._settings = settings
        self._cgroup = cgroup
        """Of the pilot container, where nothing of the jobs' account may stay; None where that is not a container."""
        self.pod = OwnPod(api, settings.pod_namespace, settings.pod_name)
        self._stop = asyncio.Event()
        self.serving = asyncio.Event()
        """Set once the engine's socket can be used."""

    def stop(self) -> None:
        """End as on SIGTERM."""
        self._stop.set()

    async def run(self) -> int:
        """Run all services until the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            async with asyncio.TaskGroup() as tasks:
                follow = tasks.create_task(self._follow(), name="watch of the own pod")
                try:
                    await self._see_pod()
                    return await self._serve(tasks)
                finally:
                    follow.cancel()
        except BaseExceptionGroup as group:
            raise first_cause(group) from group

    async def _see_pod(self) -> None:
        try:
            async with asyncio.timeout(_POD_SECONDS):
                await self.pod.until(lambda pod: pod)
        except TimeoutError:
            raise SurroundingsError(
                f"pod {self._settings.pod_namespace}/{self._settings.pod_name} cannot be read from the Kubernetes "
                f"API within {_POD_SECONDS:.0f} s; look at the API server, and at POD_NAME and POD_NAMESPACE"
            ) from None

    async def _follow(self) -> None:
        await self.pod.follow()
        logger.warning("The own pod is gone; the pilot ends with it.")
        self.stop()

    async def _serve(self, tasks: asyncio.TaskGroup) -> int:
        settings = self._settings
        if os.geteuid() == 0:
            # The kubelet makes it writable for all. HTCondor runs things as the jobs' account in this container, too
            # (sshd, transfer plugins), and none of them may put a socket of its own in the place of ours.
            settings.exchange.chmod(0o755)
        async with AsyncExitStack() as parts:
            listener = await parts.enter_async_context(
                Listener(settings.exchange / SOCKET, settings.payload_uid, self._cgroup)
            )
            await self._hear_payload(listener)
            slot = SlotAd(Folders.of(settings), settings) if "condor" in settings.services else None
            payload = self._payload(listener, tasks, Notices() if slot is None else SlotNotices(slot))
            parts.callback(payload.close)
            engine = Engine([payload], self._place, tasks)
            await parts.enter_async_context(serve(engine, settings.socket, _group("condor")))
            self.serving.set()
            logger.info("Serving the Docker Engine API on %s.", settings.socket)
            if slot is not None:
                return await self._run_condor(slot)
            await self._stop.wait()
        return 0

    async def _hear_payload(self, listener: Listener) -> None:
        """Wait for payload-init: what connects after the first bind is then known to be the container of that bind.

        A pilot that starts again may find the payload container without an image that runs; the next bind mends that.
        """
        try:
            async with asyncio.timeout(_PAYLOAD_SECONDS):
                await listener.until(lambda _: True)
        except TimeoutError:
            logger.warning(
                "payload-init of container %s has not connected within %.0f s; jobs are bound all the same.",
                self._settings.payload_container,
                _PAYLOAD_SECONDS,
            )

    def _payload(self, listener: Listener, tasks: asyncio.TaskGroup, notices: Notices) -> PayloadContainer:
        settings = self._settings
        credentials = settings.pull_secret if settings.pull_secret.exists() else None
        name = settings.payload_container
        binder = Binder(
            name,
            self.pod,
            listener,
            Registry(credentials),
            lambda: idle_image(self.pod.pod),
            reserved=(settings.exchange, settings.execute),
            patience=settings.pull_patience_seconds,
        )
        return PayloadContainer(
            name,
            self.pod,
            binder,
            Scratch(
                settings.scratch_folders,
                settings.payload_uid,
                (*SHARED, *PILOT_TEMPORARY),
                cgroup=self._cgroup,
                sandboxes=settings.execute if "condor" in settings.services else None,
            ),
            tasks,
            pace=Pace(settings.bind_timeout_seconds, settings.idle_after_seconds),
            notices=notices,
        )

    def _place(self) -> Place:
        """What jobs can ask for; containers of a pod share /dev/shm (pkg/kubelet makes one for its sandbox)."""
        view = container(self.pod.pod, self._settings.payload_container)
        memory = os.statvfs("/dev/shm")  # noqa: S108
        return Place(
            execute=str(self._settings.execute),
            volumes=view.volumes if view is not None else frozenset(),
            shared_memory=memory.f_blocks * memory.f_frsize,
            used_ports=_listening,
        )

    async def _run_condor(self, slot: SlotAd) -> int:
        """Run condor_master to its end; SIGTERM lets it vacate its jobs first."""
        started = datetime.fromisoformat(self.pod.pod["status"]["startTime"])
        folders = Folders.of(self._settings)
        await asyncio.to_thread(prepare, self._settings, folders, started=int(started.timestamp()))
        master = Master(self._settings, folders)
        await master.start()
        keeper = asyncio.ensure_future(slot.keep_docker())
        ended = asyncio.ensure_future(master.wait())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            logger.info("Ending: HTCondor vacates its jobs.")
            # As long as it needs: the pod's grace period is the limit, and the kubelet keeps it.
            await master.stop()
        status = await ended
        keeper.cancel()
        logger.info("condor_master ended with status %d.", status)
        return 0 if self._stop.is_set() else abs(status)


def idle_image(pod: dict[str, Any]) -> str:
    """A fresh reference to the pilot's own image, which the payload container runs between jobs."""
    view = container(pod, surroundings.PILOT)
    if view is None:
        raise ClusterError(f"the pod has no container {surroundings.PILOT}; its manifest is not k8spilot's")
    _, _, digest = view.image_id.rpartition("@")
    if not digest.startswith("sha256:"):  # an image that no registry knows, loaded on the node by hand
        return view.wanted
    return Reference.parse(view.wanted).fresh(digest, uuid.uuid4().hex[:12])


def _listening() -> set[int]:
    """TCP ports on which anything in the pod's network listens."""
    found = psutil.net_connections("tcp")
    return {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN and one.laddr}


def _group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
