"""The engine's work for HTCondor: the list of the node's images, and the daemons' log lines.

Where HTCondor has a container of its own, the HTCondor agent watches the daemons and sends the lines.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from k8spilot.common.aio import guarded_task
from k8spilot.common.errors import PilotError
from k8spilot.condor.ads.agent_link import RemoteStartdAd
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.daemons.end_reason import EndReason
from k8spilot.condor.daemons.liveness import JOB_LOG, LineHandler
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.condor.daemons.watch import DaemonWatch
from k8spilot.docker.removal import clear_slot
from k8spilot.docker.store import ContainerStore
from k8spilot.engine.components import Components
from k8spilot.settings import Settings

_CLEAR_SECONDS: Final = 15.0
"""Seconds to wait for the end of a job under which HTCondor's daemons hang, before the next check."""


@asynccontextmanager
async def supervised_condor(
    parts: Components,
    tasks: asyncio.TaskGroup,
    *,
    settings: Settings,
    reason: EndReason,
    end: Callable[[], None],
    is_first: bool,
) -> AsyncIterator[None]:
    """Handle HTCondor's log lines while the context lasts, and watch its daemons if they are in this container.

    At its end HTCondor has ended: its last log lines are read.

    Args:
        parts: parts of the engine.
        tasks: task group for it.
        settings: settings of the pilot.
        reason: receives the reason of the pilot's end.
        end: called when HTCondor's startd has ended for good, or was never in the pool.
        is_first: whether this is the first engine of its container.
    """
    report = _report_handler(parts)
    startd_ad = parts.startd_ad
    async with AsyncExitStack() as ends:
        ends.enter_context(guarded_task(tasks, parts.images.refresh, "the list of the node's images", may_end=True))
        if isinstance(startd_ad, RemoteStartdAd):

            async def handle_line(log: str, line: str) -> None:
                reason.handle_line(log, LogLine.of(line))
                await report(log, line)

            startd_ad.handle_line = handle_line
        elif isinstance(startd_ad, LocalStartdAd):
            watch = DaemonWatch(startd_ad, settings, reason=reason, report=report, end=end)
            await ends.enter_async_context(watch.running(tasks, include_existing=not is_first))
        yield


def _report_handler(parts: Components) -> LineHandler:
    """Return the handler for each log line of HTCondor's daemons, and for reports about the daemons."""

    async def handle(log: str, line: str) -> None:
        await parts.telemetry.handle_line(log, line)
        if log == JOB_LOG:
            await asyncio.gather(*(_clear(slot.store) for slot in parts.slots))

    return handle


async def _clear(store: ContainerStore) -> None:
    """End a slot's job. A failure is in the log; the next job's starter repeats the removal. A long one continues."""
    with suppress(PilotError, TimeoutError):
        async with asyncio.timeout(_CLEAR_SECONDS):
            await clear_slot(store, why="HTCondor's daemons hang")
