"""The telemetry service: connects metrics, Events, probes and status, and serves them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client.core import Metric

import k8spilot
from k8spilot.common import engine_api
from k8spilot.common.restarting import restarting
from k8spilot.condor.startd_ad import StartdAd
from k8spilot.gpu.monitoring.container import GpuMetrics
from k8spilot.kube.events import Events
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.payload_state import PayloadState
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import Settings
from k8spilot.telemetry import health
from k8spilot.telemetry.event_recorder import EventRecorder
from k8spilot.telemetry.exporter import application, keep_open
from k8spilot.telemetry.gpu_metrics import families
from k8spilot.telemetry.metrics import CONTENT_TYPE, Metrics, Now, wall_time
from k8spilot.telemetry.slot_recorder import SlotRecorder
from k8spilot.telemetry.status import Status

if TYPE_CHECKING:
    from k8spilot.gpu.discovery.record import GpuRecord
    from k8spilot.payload.container import PayloadContainer

_SAME_SECONDS: Final = 1.0
"""Minimum age of the metrics before they are rendered again. Every client that can connect can request them."""
_LAST_SECONDS: Final = 3.0
"""Limit of the last Events at the end. The supervisor gives an engine 10 s to end."""


class Telemetry:
    """Observes the parts of a pilot, and reports on them."""

    def __init__(
        self,
        settings: Settings,
        pod: OwnPod,
        init_server: PayloadInitServer,
        slot: StartdAd,
        restarts: int,
        image: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._pod = pod
        self._init_server = init_server
        self._slot = slot
        self._restarts = restarts
        self._metrics = Metrics(self._now, self._of_gpus)
        events = Events(pod.api, settings.pod_namespace, settings.pod_name, settings.pod_uid)
        self._event_recorder = EventRecorder(events, self._metrics.suppress)
        self.recorder = SlotRecorder(self._metrics, self._event_recorder)
        """Records the events of the slot."""
        self.gpu_metrics = GpuMetrics(settings, pod, image, self.recorder.gpus_unmeasured, self._age)
        """Measures the GPUs after the discovery."""
        self.payload: PayloadContainer | None = None
        """The payload container; None until the engine has created it."""
        self.gpus: GpuRecord | None = None
        """The pod's GPUs; None until the discovery has ended."""
        self._status = Status(pod, init_server, self.recorder, slot, settings.socket, restarts)
        self._text = (0.0, b"")
        self.routes = [
            web.get(engine_api.STATUS, self._tell_status),
            web.get(engine_api.GPUS, self._tell_gpus),
            web.get(engine_api.INVENTORY, self._tell_inventory),
            *self.gpu_metrics.routes,
        ]
        """Routes for the Docker socket, which only root and HTCondor can reach."""

    async def heed(self, log: str, line: str) -> None:
        """Handle a log line of HTCondor's daemons: name of the file, line."""
        await self.recorder.heed(log, line)

    @asynccontextmanager
    async def telling(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Serve metrics and probes, and create Events, for as long as the context lasts."""
        work = [tasks.create_task(restarting(self._event_recorder.run, "the event recorder"), name="Events")]
        if port := self._settings.metrics_port:
            app = application(
                [
                    web.get("/metrics", self._tell_metrics),
                    web.get("/healthz", self._tell_health),
                    web.get("/readyz", self._tell_readiness),
                ]
            )
            serving = partial(keep_open, port, app, self.recorder.port_taken)
            work.append(tasks.create_task(restarting(serving, "the metrics server"), name="metrics"))
        self._pod.connectivity.returned = self.recorder.returned
        self.recorder.recovered(self._restarts)
        try:
            yield
            self.recorder.drained()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._event_recorder.flush()
            for task in work:
                task.cancel()

    def _now(self) -> Now:
        pod, payload = self._pod, self.payload
        heard = pod.api.heard
        return Now(
            version=k8spilot.__version__,
            state=PayloadState.IDLE if payload is None else payload.state,
            restarts=self._restarts,
            requests=pod.api.requests,
            reachable=pod.connectivity.since is None,
            heard=None if heard is None else wall_time(heard, asyncio.get_running_loop().time()),
            running_since=None if payload is None else payload.running_since,
            pulling_since=None if payload is None else payload.abandoned_pull.since,
        )

    def _of_gpus(self) -> Iterator[Metric]:
        if (meter := self.gpu_metrics.meter) is not None:
            yield from families(meter, self.gpu_metrics.up, self._is_jobs)

    def _is_jobs(self, pid: int) -> bool:
        """Return whether a process of the pod belongs to the job: no other program with this uid uses GPUs."""
        try:
            return os.stat(f"/proc/{pid}").st_uid == self._settings.payload_uid  # noqa: PTH116
        except OSError:
            return False

    def _age(self) -> float | None:
        """Return how long the job has run, in seconds; None without a job."""
        since = None if self.payload is None else self.payload.running_since
        return None if since is None else (datetime.now(UTC) - since).total_seconds()

    async def _tell_metrics(self, _request: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        if not self._text[1] or now - self._text[0] >= _SAME_SECONDS:
            self._text = (now, self._metrics.text())
        return web.Response(body=self._text[1], headers={"Content-Type": CONTENT_TYPE})

    async def _tell_health(self, _request: web.Request) -> web.Response:
        return _verdict(await health.dead(self._settings.socket))

    async def _tell_readiness(self, _request: web.Request) -> web.Response:
        abandoned_pull = None if self.payload is None else self.payload.abandoned_pull
        return _verdict(health.unready(self._pod, self._init_server, abandoned_pull))

    async def _tell_status(self, _request: web.Request) -> web.Response:
        assert self.payload is not None
        assert self.gpus is not None
        return web.json_response(await self._status.json(self.payload, self.gpus))

    async def _tell_gpus(self, _request: web.Request) -> web.Response:
        assert self.gpus is not None
        return web.json_response(self.gpus.json())

    async def _tell_inventory(self, _request: web.Request) -> web.Response:
        assert self.gpus is not None
        return web.Response(text=self.gpus.inventory)


def _verdict(fault: str) -> web.Response:
    if fault:
        return web.Response(text=f"{fault}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return web.Response(text="ok\n")
