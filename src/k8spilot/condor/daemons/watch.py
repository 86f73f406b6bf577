"""Work for as long as HTCondor's daemons run beside this process, in the engine or in the HTCondor agent.

Their log lines are handled, hanging daemons are ended, and the pool and the pod's processes are watched. Every part
restarts after a defect. In the agent, too: a defect that repeats, such as in the handling of one line, would use up the
supervisor's restarts, and end the pilot with its jobs.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress

from k8spilot.common.aio import guarded_task
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.daemons.end_reason import EndReason
from k8spilot.condor.daemons.liveness import LineHandler, end_hanging_daemons
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.condor.daemons.logs import LAST_LINES_SECONDS, copy_logs, startd_has_ended
from k8spilot.condor.daemons.pool_watch import PoolWatch
from k8spilot.condor.daemons.process_watch import ProcessWatch
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)


async def _nothing() -> None:
    pass


class DaemonWatch:
    """Watches the daemons, and ends the pilot when they have ended or cannot work."""

    def __init__(
        self,
        startd_ad: LocalStartdAd,
        settings: Settings,
        reason: EndReason,
        report: LineHandler,
        end: Callable[[], None],
        *,
        watches_processes: bool = False,
    ) -> None:
        """Initialize without I/O.

        Args:
            startd_ad: the slots' ads, which some log lines correct.
            settings: settings of the pilot.
            reason: receives the reason of the pilot's end.
            report: receives each log line, and each report about the daemons and the pool.
            end: ends HTCondor, and with it the pilot.
            watches_processes: whether jobs can leave processes that only the pod's end removes (process_watch.py).
        """
        self._startd_ad = startd_ad
        self._reason = reason
        self._report = report
        self._end = end
        self.pool = PoolWatch(settings, startd_ad.folders, self._handle_report, lambda why: self._end_with(why, 1))
        self._processes = ProcessWatch(lambda why: self._end_with(why, 0)) if watches_processes else None

    @asynccontextmanager
    async def running(
        self,
        tasks: asyncio.TaskGroup,
        *,
        include_existing: bool,
        flush: Callable[[], Awaitable[None]] = _nothing,
    ) -> AsyncIterator[None]:
        """Watch while the context lasts. At its end HTCondor has ended: its last log lines are read.

        Args:
            tasks: task group for the work.
            include_existing: whether to begin with existing log lines, after the death of an earlier process.
            flush: called after the last line; the time limit of the last lines includes it.
        """
        ending = asyncio.Event()

        async def read_logs() -> None:
            nonlocal include_existing
            include, include_existing = include_existing, True  # after a failure, the end of the startd may be there
            await copy_logs(self._startd_ad.folders, self._handle_line, include_existing=include, ending=ending)

        async def end_hanging() -> None:
            await end_hanging_daemons(self._startd_ad.folders, os.getppid(), self._handle_report)

        with ExitStack() as ends:
            reading = ends.enter_context(guarded_task(tasks, read_logs, "the reader of HTCondor's logs", may_end=True))
            ends.enter_context(guarded_task(tasks, end_hanging, "the check of HTCondor's daemons"))
            ends.enter_context(guarded_task(tasks, self.pool.run, "the watch of the pool"))
            if self._processes is not None:
                ends.enter_context(
                    guarded_task(tasks, self._processes.run, "the watch of the pod's processes", may_end=True)
                )
            yield
            ending.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_LINES_SECONDS):
                    await asyncio.wait([reading])
                    await flush()

    async def _handle_line(self, log: str, line: str) -> None:
        await self._handle_report(log, line)
        await self._startd_ad.handle_line(log, line)
        parts = LogLine.of(line)
        self.pool.handle_line(log, parts)
        if self._processes is not None:
            self._processes.handle_line(log, parts)
        if await startd_has_ended(log, line, os.getppid()):
            logger.info("HTCondor's startd has ended for good; ending the pilot.")
            self._end()

    async def _handle_report(self, log: str, line: str) -> None:
        self._reason.handle_line(log, LogLine.of(line))
        await self._report(log, line)

    def _end_with(self, why: str, status: int) -> None:
        self._reason.set(why, status)
        self._end()
