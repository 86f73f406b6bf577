"""Work for as long as HTCondor runs: its logs are read, and its daemons are checked for life."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

from k8spilot.common.aio import restarting
from k8spilot.common.errors import PilotError
from k8spilot.condor.agent_link import RemoteStartdAd
from k8spilot.condor.daemon_logs import LAST_LINES_SECONDS, follow, startd_has_ended
from k8spilot.condor.end_reason import EndReason
from k8spilot.condor.liveness import JOB_LOG, LineHandler, end_hanging_daemons
from k8spilot.condor.log_lines import LogLine
from k8spilot.condor.pool_watch import PoolWatch
from k8spilot.condor.startd_ad import LocalStartdAd
from k8spilot.docker.removal import clear_slot
from k8spilot.docker.store import ContainerStore
from k8spilot.engine.components import Components
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

_CLEAR_SECONDS: Final = 15.0
"""Seconds to wait for the end of a job under which HTCondor's daemons hang, before the next check."""


@asynccontextmanager
async def look_after_condor(
    parts: Components,
    tasks: asyncio.TaskGroup,
    settings: Settings,
    reason: EndReason,
    end: Callable[[], None],
    *,
    is_first: bool,
) -> AsyncIterator[None]:
    """Read HTCondor's logs and check its daemons while the context lasts.

    At its end HTCondor has ended: its last log lines are read.

    Args:
        parts: parts of the engine.
        tasks: task group for it.
        settings: settings of the pilot.
        reason: receives the reason of the pilot's end.
        end: called when HTCondor's startd has ended for good, or was never in the pool.
        is_first: whether this is the first engine of its container.
    """
    looking = restarting(parts.images.follow, "the list of the node's images", may_end=True)
    handler = _line_handler(parts, reason)
    slot = parts.startd_ad

    def end_outside_the_pool(why: str) -> None:
        reason.set(why, status=1)
        end()

    async with AsyncExitStack() as ends:
        ends.enter_context(_cancelled_at_end([tasks.create_task(looking, name="the node's images")]))
        if isinstance(slot, RemoteStartdAd):
            slot.handle_line = handler
        elif isinstance(slot, LocalStartdAd):
            watch = PoolWatch(settings, slot.folders, handler, end_outside_the_pool)
            await ends.enter_async_context(_follow_daemons(slot, tasks, handler, watch, end, is_first=is_first))
        yield


@asynccontextmanager
async def _follow_daemons(
    slot: LocalStartdAd,
    tasks: asyncio.TaskGroup,
    handler: LineHandler,
    watch: PoolWatch,
    end: Callable[[], None],
    *,
    is_first: bool,
) -> AsyncIterator[None]:
    """Follow HTCondor's daemons in this container: their logs, whether they answer, and the pool."""

    async def handle_line(log: str, line: str) -> None:
        await handler(log, line)
        await slot.handle_line(log, line)
        watch.handle_line(log, LogLine.of(line))
        if await startd_has_ended(log, line, os.getppid()):
            logger.info("HTCondor's startd has ended for good; ending the pilot.")
            end()

    ending = asyncio.Event()
    following = partial(follow, slot.folders, handle_line, before=not is_first, ending=ending)
    reading = tasks.create_task(
        restarting(following, "the reader of HTCondor's logs", may_end=True), name="HTCondor's logs"
    )
    asking = restarting(
        partial(end_hanging_daemons, slot.folders, os.getppid(), handler), "the check of HTCondor's daemons"
    )
    work = [
        reading,
        tasks.create_task(asking, name="HTCondor answers"),
        tasks.create_task(restarting(watch.run, "the watch of the pool"), name="the pool"),
    ]
    with _cancelled_at_end(work):
        yield
        ending.set()
        await asyncio.wait([reading], timeout=LAST_LINES_SECONDS)


@contextmanager
def _cancelled_at_end(work: Sequence[asyncio.Task[None]]) -> Iterator[None]:
    try:
        yield
    finally:
        for task in work:
            task.cancel()


def _line_handler(parts: Components, reason: EndReason) -> LineHandler:
    """Return the handler for each log line of HTCondor's daemons, and for reports about the daemons."""

    async def handle_line(log: str, line: str) -> None:
        reason.handle_line(log, LogLine.of(line))
        await parts.telemetry.handle_line(log, line)
        if log == JOB_LOG:
            await asyncio.gather(*(_clear(slot.store) for slot in parts.slots))

    return handle_line


async def _clear(store: ContainerStore) -> None:
    """End a slot's job. A failure is in the log; the next job's starter repeats the removal. A long one continues."""
    with suppress(PilotError, TimeoutError):
        async with asyncio.timeout(_CLEAR_SECONDS):
            await clear_slot(store, why="HTCondor's daemons hang")
