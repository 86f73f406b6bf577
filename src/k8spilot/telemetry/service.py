"""The telemetry service: connects metrics, Events, probes and status, and serves them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web
from prometheus_client.core import Metric

import k8spilot
from k8spilot.common import pilot_api
from k8spilot.common.aio import guarded_task
from k8spilot.gpu.monitoring.metrics_container import GpuMetrics
from k8spilot.kube.client import Api
from k8spilot.kube.events import Events
from k8spilot.model.pool_state import LOG as POOL_LOG
from k8spilot.settings import Settings
from k8spilot.telemetry import health
from k8spilot.telemetry.event_recorder import EventRecorder
from k8spilot.telemetry.exporter import application, keep_open
from k8spilot.telemetry.gpu_metrics import families
from k8spilot.telemetry.metrics import CONTENT_TYPE, Metrics, Now, NowOfSlot, wall_time
from k8spilot.telemetry.pool_recorder import PoolRecorder
from k8spilot.telemetry.slot_recorder import SlotRecorder
from k8spilot.telemetry.status import Observed, Status

_SAME_SECONDS: Final = 1.0
"""Minimum age of the metrics before they are rendered again. Every client that can connect can request them."""
_LAST_SECONDS: Final = 3.0
"""Limit of the last Events at the end. The supervisor gives an engine 10 s to end."""


class Recorders:
    """Metrics and recorders of events, from the start of the engine."""

    def __init__(self, settings: Settings, api: Api) -> None:
        self.metrics = Metrics()
        events = Events(api, settings.pod_namespace, settings.pod_name, settings.pod_uid)
        self.events = EventRecorder(events, self.metrics.suppress)
        self.slot = SlotRecorder(self.metrics, self.events)
        """Records the events of the slot."""
        self.pool = PoolRecorder(self.events)
        """Records whether the pool has the slot."""


class Telemetry:
    """Observes the parts of a pilot, and reports on them."""

    def __init__(
        self, settings: Settings, observed: Observed, recorders: Recorders, idle_image: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._uids = {slot.uid for slot in settings.slots}
        self._observed = observed
        self._recorders = recorders
        self.gpu_metrics = GpuMetrics(
            settings, observed.pod, image=idle_image, report=recorders.slot.gpus_unmeasured, age=self._age
        )
        """Measures the GPUs after the discovery."""
        self._status = Status(observed, recorders.slot, recorders.pool, settings.socket)
        self._text = (0.0, b"")
        self.routes = [
            web.get(pilot_api.STATUS, self._serve_status),
            web.get(pilot_api.GPUS, self._serve_gpus),
            web.get(pilot_api.INVENTORY, self._serve_inventory),
            *self.gpu_metrics.routes,
        ]
        """Routes for the Docker socket, which only root and HTCondor can reach."""

    async def handle_line(self, log: str, line: str) -> None:
        """Handle a log line of HTCondor's daemons (name of the file, line), and a report about the pool."""
        if log == POOL_LOG:
            self._recorders.pool.handle(line)
            return
        await self._recorders.slot.handle_line(log, line)

    @asynccontextmanager
    async def serving(self, tasks: asyncio.TaskGroup, reason: Callable[[], str] = lambda: "") -> AsyncIterator[None]:
        """Serve metrics and probes, and create Events, for as long as the context lasts.

        At its end, `reason` returns the reason of the pilot's end, a phrase, or an empty string.
        """
        recorder = self._recorders.slot
        with ExitStack() as ends:
            ends.enter_context(guarded_task(tasks, self._recorders.events.run, "the event recorder"))
            if port := self._settings.metrics_port:
                serving = partial(keep_open, port, self._application(), recorder.port_taken)
                ends.enter_context(guarded_task(tasks, serving, "the metrics server"))
            self._observed.pod.connectivity.returned = recorder.returned
            recorder.recovered(self._observed.restarts)
            try:
                yield
                recorder.drained(reason())
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await self._recorders.events.flush()

    def _application(self) -> web.Application:
        return application(
            [
                web.get("/metrics", self._serve_metrics),
                web.get("/healthz", self._serve_health),
                web.get("/readyz", self._serve_readiness),
            ]
        )

    def _now(self) -> Now:
        pod = self._observed.pod
        heard, closure = pod.api.heard, self._recorders.slot.closure
        return Now(
            version=k8spilot.__version__,
            slots=[
                NowOfSlot(
                    one.payload.name, one.payload.state, one.payload.running_since, one.payload.abandoned_pull.since
                )
                for one in self._observed.slots
            ],
            restarts=self._observed.restarts,
            requests=pod.api.requests,
            reachable=pod.connectivity.since is None,
            heard=None if heard is None else wall_time(heard, asyncio.get_running_loop().time()),
            closed_until=closure.until if closure is not None and closure.lasts else None,
            pool=self._recorders.pool.state,
        )

    def _of_gpus(self) -> Iterator[Metric]:
        if (meter := self.gpu_metrics.meter) is not None:
            yield from families(meter, self.gpu_metrics.up, self._is_jobs)

    def _is_jobs(self, pid: int) -> bool:
        """Return whether a process of the pod belongs to a job: no other program with these uids uses GPUs."""
        try:
            return os.stat(f"/proc/{pid}").st_uid in self._uids  # noqa: PTH116
        except OSError:
            return False

    def _age(self, uuid: str) -> float | None:
        """Return how long the job on a GPU has run, in seconds; of several, the one that runs the longest."""
        slots = [one for one in self._observed.slots if uuid in {device.uuid for device in one.gpus.usable}]
        times = [since for one in slots if (since := one.payload.running_since) is not None]
        return (datetime.now(UTC) - min(times)).total_seconds() if times else None

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        if not self._text[1] or now - self._text[0] >= _SAME_SECONDS:
            self._text = (now, self._recorders.metrics.text(self._now(), self._of_gpus()))
        return web.Response(body=self._text[1], headers={"Content-Type": CONTENT_TYPE})

    async def _serve_health(self, _request: web.Request) -> web.Response:
        return _verdict(await health.dead(self._settings.socket))

    async def _serve_readiness(self, _request: web.Request) -> web.Response:
        pod, startd_ad = self._observed.pod, self._observed.startd_ad
        faults = [health.unready(pod, one.init_server, one.payload.abandoned_pull) for one in self._observed.slots]
        fault = "" if "" in faults else faults[0]  # ready means that the next job could start in one of the slots
        return _verdict(fault or (self._recorders.pool.problem if startd_ad.expected else ""))

    async def _serve_status(self, _request: web.Request) -> web.Response:
        return web.json_response(await self._status.json())

    async def _serve_gpus(self, _request: web.Request) -> web.Response:
        return web.json_response(self._observed.gpus.json(evidence=True))

    async def _serve_inventory(self, _request: web.Request) -> web.Response:
        return web.Response(text=self._observed.gpus.inventory)


def _verdict(fault: str) -> web.Response:
    if fault:
        return web.Response(text=f"{fault}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return web.Response(text="ok\n")
