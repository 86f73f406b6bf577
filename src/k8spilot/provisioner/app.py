"""Composition root of the provisioner: makes its parts, runs them, ends them."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.common.aio import restarting
from k8spilot.common.errors import ClusterError
from k8spilot.common.logs import set_up
from k8spilot.provisioner import report
from k8spilot.provisioner.cluster import connect
from k8spilot.provisioner.controller import Controller
from k8spilot.provisioner.leader import Leadership
from k8spilot.provisioner.pool.client import pool_of
from k8spilot.provisioner.report import Turn
from k8spilot.provisioner.settings import ProvisionerSettings
from k8spilot.telemetry.exporter import keep_open
from k8spilot.telemetry.metrics import CONTENT_TYPE

_HANGING_SECONDS: Final = 300.0
"""Time without the end of a turn after which the provisioner counts as hanging."""
_FIRST_SECONDS: Final = 60.0
"""Limit of the first answers of the API server, for a plan without changes."""


async def provision(settings: ProvisionerSettings) -> None:
    """Run until SIGTERM or SIGINT. Pilots stay: the next provisioner goes on with them.

    Raises:
        PilotError: there are no credentials for the cluster.
    """
    set_up(settings.log_level, settings.log_format)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with _parts(settings) as (controller, leadership):
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "the watch of pods": controller.pods.run,
            "the watch of templates": controller.templates.reflector.run,
            "the Lease": leadership.run,
            "the controller": controller.run,
        }
        if settings.metrics_port:
            application = _application(controller, leadership)
            works["the metrics server"] = partial(keep_open, settings.metrics_port, application, lambda _: None)
        async with asyncio.TaskGroup() as tasks:
            # Each restarts after a defect: the others go on, and the Lease is released at the end only.
            started = [tasks.create_task(restarting(work, name), name=name) for name, work in works.items()]
            await ended.wait()
            for task in started:
                task.cancel()
        await leadership.release()


async def dry_run(settings: ProvisionerSettings) -> list[str]:
    """Return the plan of one turn as text. Nothing is changed.

    Raises:
        PilotError: there are no credentials for the cluster, or the API server refuses or does not answer.
    """
    set_up("WARNING", settings.log_format)
    async with _parts(settings) as (controller, _):
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await controller.pods.relist()
                await controller.templates.reflector.relist()
        except TimeoutError:
            raise ClusterError(f"the API server did not answer within {_FIRST_SECONDS:.0f} s") from None
        now = time.time()
        await controller.recall()
        plan, faults = await controller.observe(now)
    turn = Turn(time=now, leader="dry run", faults=faults, invalid=controller.templates.invalid, plan=plan)
    return list(report.lines(report.status(turn, {}), now))


@asynccontextmanager
async def _parts(settings: ProvisionerSettings) -> AsyncIterator[tuple[Controller, Leadership]]:
    async with AsyncExitStack() as ends:
        cluster = await ends.enter_async_context(connect(settings.pod_namespace))
        pool = await ends.enter_async_context(pool_of(settings.central_manager))
        leadership = Leadership(cluster, settings.pod_name)
        yield Controller(settings, cluster, pool, leadership), leadership


def _application(controller: Controller, leadership: Leadership) -> web.Application:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=controller.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def alive(_: web.Request) -> web.Response:
        silent = time.monotonic() - controller.last_end
        if silent > _HANGING_SECONDS:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"no turn has ended for {silent:.0f} s\n")
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        figures = controller.metrics
        if not controller.has_reported and not leadership.is_elsewhere:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="the first turn has not ended\n")
        if figures.is_leader and not (figures.api_answers and figures.pool_answers):
            missing = "the pool does" if figures.api_answers else "the Kubernetes API does"
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{missing} not answer\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics), web.get("/healthz", alive), web.get("/readyz", ready)])
    return application
