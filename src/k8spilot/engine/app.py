"""Composition root: has the engine's parts created, starts its tasks, and ends with its pod or on request.

Order: follow the own pod, create the parts (engine/components.py), serve the Docker socket, handle HTCondor's slot. The
end has the reverse order. Every task has a name and belongs to a group that ends with it. The supervisor
(supervisor/supervisor.c) starts the engine as a separate process, and restarts it after its death: the engine must not
rely on an earlier state.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from k8spilot.common import logs, pilot_api
from k8spilot.common.aio import guarded_task, restarting, run, side_by_side
from k8spilot.common.errors import PilotError, first_cause
from k8spilot.common.proc import own_cgroup
from k8spilot.condor.ads.agent_link import RemoteStartdAd, facts_route
from k8spilot.condor.daemons.end_reason import EndReason
from k8spilot.condor.folders import Folders
from k8spilot.docker.listening import listen
from k8spilot.docker.pre_job import next_job
from k8spilot.docker.server import serve
from k8spilot.engine.components import Components, build
from k8spilot.engine.condor_work import supervised_condor
from k8spilot.engine.slots import EngineContext
from k8spilot.engine.startup import deaths
from k8spilot.gpu.monitoring.metrics_container import MonitoredGpus
from k8spilot.kube.client import Access, Api
from k8spilot.kube.deletion import deletion, watch_deletion
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import start_of_life
from k8spilot.payload.scrub.from_pilot import TIDY_OF_ROOT
from k8spilot.settings import KILLING_SECONDS, MARGIN_SECONDS, Settings
from k8spilot.supervisor.plan import DONE, GONE, SOCKETS

logger = logging.getLogger(__name__)

_LAST_SECONDS: Final = 6.0
"""Seconds for HTCondor to kill its jobs and report it."""


class EngineApp:
    """Engine of one pilot."""

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
        self._agent = None if "condor" in settings.services else RemoteStartdAd()
        self.end = end if self._agent is None else self._agent.end
        """Makes HTCondor's supervisor end, and with it the pilot."""
        self._listening = listening
        """Docker sockets of the supervisor; without a supervisor the engine creates them."""
        self.pod = OwnPod(api, settings.pod_namespace, settings.pod_name, settings.pod_uid)
        self._context = EngineContext(settings=settings, pod=self.pod, cgroup=cgroup, tidy=tidy, agent=self._agent)
        self._reason = EndReason(
            Folders.of(settings).end_reason if self._agent is None else None, settings.accept_idle_minutes
        )
        self._stop = asyncio.Event()
        self.serving = asyncio.Event()
        """Set when the engine's socket is served."""

    def stop(self) -> None:
        """End as on SIGTERM."""
        self._stop.set()

    async def run(self) -> int:
        """Serve until the end; return the process's exit status.

        Raises:
            PilotError: the engine cannot run.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch_pod(), name="watch of the own pod")
                try:
                    await self._serve(tasks)
                finally:
                    watch.cancel()
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        return GONE if self.pod.gone else 0

    async def _watch_pod(self) -> None:
        """Watch the own pod, and end with it."""
        await self.pod.run()
        logger.warning("The own pod is gone; the pilot ends with it.")
        self._reason.set("the own pod is gone from the Kubernetes API")
        if self._agent is not None:
            self._agent.end()
        self.stop()

    async def _note_deletion(self) -> None:
        """Wait for the own pod's deletion: it is the reason of the end."""
        self._reason.set(await self.pod.until(deletion))

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        async with AsyncExitStack() as ends:
            parts = await build(self._context, tasks, ends)
            listening = self._listening or [listen(path) for path in self._settings.sockets]
            endpoints = {path: one for slot in parts.slots for path, one in slot.endpoints.items()}
            await ends.enter_async_context(serve(endpoints, listening, self._routes(parts)))
            await ends.enter_async_context(parts.telemetry.serving(tasks, lambda: self._reason.text))
            ends.callback(tasks.create_task(self._note_deletion(), name="deletion of the own pod").cancel)
            ends.enter_context(guarded_task(tasks, _gpu_metrics(parts), "the GPU metrics", may_end=True))
            self.serving.set()
            sockets = ", ".join(str(slot.socket) for slot in self._settings.slots)
            logger.info("Serving the Docker Engine API on %s.", sockets)
            async with supervised_condor(
                parts, tasks, settings=self._settings, reason=self._reason, end=self.end, is_first=deaths() == 0
            ):
                await self._stop.wait()

    def _routes(self, parts: Components) -> list[web.RouteDef]:
        """Return the routes besides the Docker Engine API."""
        routes = [*parts.telemetry.routes, web.get(pilot_api.NEXT_JOB, next_job)]
        if self._agent is not None:
            started = facts_route(lambda: start_of_life(self.pod.pod), self._agent.expect)
            routes += [*self._agent.routes, started]
        return routes


def _gpu_metrics(parts: Components) -> Callable[[], Awaitable[None]]:
    gpus = parts.gpus
    return partial(parts.telemetry.gpu_metrics.run, MonitoredGpus(gpus.strategy, gpus.expected, gpus.groups))


def main() -> int:
    """Run the engine that the supervisor starts: settings from the environment, the Docker sockets as descriptors."""
    try:
        settings = Settings.from_environment()
        logs.set_up(settings.log_level, settings.log_format)
        return run(_run(settings))
    except PilotError as error:
        logs.last_word(str(error))
        return 1


async def _run(settings: Settings) -> int:
    async with Api(Access.in_cluster()) as api:
        signal_supervisor = partial(os.kill, os.getppid())
        listening = [socket.socket(fileno=SOCKETS + place) for place in range(len(settings.sockets))]
        app = EngineApp(settings, api, own_cgroup(), listening, end=partial(signal_supervisor, DONE))
        # The supervisor took the kubelet's SIGTERM as the first; a second one makes it hurry.
        hurry = partial(signal_supervisor, signal.SIGTERM) if "condor" in settings.services else app.end
        enough = settings.vacate_seconds + KILLING_SECONDS + MARGIN_SECONDS
        watching = partial(watch_deletion, app.pod, enough=enough, last=_LAST_SECONDS, act=hurry)
        async with side_by_side(restarting(watching, "the watch of the grace period", may_end=True)):
            return await app.run()
