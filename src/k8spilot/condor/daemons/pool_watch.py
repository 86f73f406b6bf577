"""The watch of the pool: whether its collectors have the slot's ad, from HTCondor's start to its end.

It runs beside HTCondor, in the engine or in the HTCondor agent. HTCondor's log shows when the startd sends its first
update, and when an update fails; a client of the startd's port, such as a job, could forge such a line. So a line only
makes the watch query the collectors earlier, at most every 15 s. While nothing is logged, it queries them every five
minutes: 500 pilots make fewer than two small queries a second.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from k8spilot.common.aio import is_set_within
from k8spilot.common.logs import capitalized
from k8spilot.condor.configuration.values import UPDATE_SECONDS
from k8spilot.condor.daemons.collectors import Answer, Collectors
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.condor.folders import Folders
from k8spilot.model.pool_state import LOG, PoolState
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

_FIRST: Final = "Initial update sent to collector(s)"
"""Log line of a startd that has started (ResMgr.cpp, send_update). It does not mean that a collector took the ad."""
_FAILED: Final = re.compile(
    r"Failed to (?:start non-blocking|send non-blocking|send) update to .*\.|"
    r"Can't resolve collector .*; skipping update"
)
"""Log lines of an update that failed (dc_collector.cpp, daemon_list.cpp)."""

_START_SECONDS: Final = 8.0
"""Wait for the startd's first update before the first query."""
_PAUSE_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Pauses between queries while the slot is not in the pool; the last one repeats."""
_CALM_SECONDS: Final = 300.0
"""Pause between queries while it is."""
_LEAST_SECONDS: Final = 15.0
"""Least pause while it is, whatever the log says."""
_LOST_SECONDS: Final = UPDATE_SECONDS + 30.0
"""Grace for a slot that was in the pool: a collector that restarted gets the ad with the next update."""
_JOINING_SECONDS: Final = 20.0
"""Grace after the startd's first update, where a collector accepts the pilot."""
_STARTING_SECONDS: Final = 120.0
"""Grace for that first update, and for answers that do not come in time: a busy node runs HTCondor slowly."""
_MANY: Final = 2
"""Queries in succession without the slot that make it missing: on a busy node, a tool may be late once."""

Report = Callable[[str, str], Awaitable[None]]


class PoolWatch:
    """Queries the collectors, and reports each change."""

    def __init__(self, settings: Settings, folders: Folders, report: Report, end: Callable[[str], None]) -> None:
        self._collectors = Collectors(settings, folders)
        self._limit = settings.join_timeout_seconds
        self._report = report
        self._end = end
        """Ends the pilot, which was never in the pool, with a sentence."""
        self._mark = folders.was_in_pool
        self._was_in = self._mark.exists()
        """Whether the slot has been in the pool."""
        self._began = time.monotonic()
        self._out_since: float | None = self._began
        """Since when no collector has the slot (monotonic seconds); None while one has it."""
        self._up_at = self._began if self._was_in else None
        """When the startd has sent its first update (monotonic seconds); None before."""
        self._misses = 0
        """Queries without the slot since the last one with it."""
        self._woken = asyncio.Event()
        self.state = PoolState(False, self._collectors.slot, "", time.time(), ever=self._was_in)

    def handle_line(self, log: str, line: LogLine) -> None:
        """Query earlier if a line of the startd's log is about an update."""
        if log != "StartLog":
            return
        if line.message == _FIRST:
            self._up_at = time.monotonic()
            self._woken.set()
        elif self._out_since is None and _FAILED.fullmatch(line.message):
            self._woken.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._report(LOG, self.state.text())
        await self._pause(_START_SECONDS)
        queries = 0
        while True:
            self._woken.clear()
            await self._judge(await self._collectors.query())
            if self._out_since is None:
                queries = 0
                calm = _CALM_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 -- spreads the queries
                await self._pause(calm, least=_LEAST_SECONDS)
            else:
                pause = _PAUSE_SECONDS[min(queries, len(_PAUSE_SECONDS) - 1)]
                await self._pause(pause * random.uniform(0.8, 1.2))  # noqa: S311 -- the same
                queries += 1

    async def _pause(self, seconds: float, *, least: float = 0.0) -> None:
        """Wait for a line about an update, at least `least` and at most `seconds`."""
        await asyncio.sleep(least)
        await is_set_within(self._woken, seconds - least)

    async def _judge(self, answer: Answer) -> None:
        now = time.monotonic()
        # Without READ the collector shows no ad, but it accepts the pilot. A failure in the log does not count: a job
        # could forge it.
        is_accepted = not answer.problem and self._up_at is not None
        if answer.updated is not None or is_accepted:
            self._out_since = None
            self._misses = 0
            self._was_in = True
            with suppress(OSError):  # the disk is full
                self._mark.touch()
            await self._change(True, answer.collector, answer.updated or time.time(), "")
            return
        if self._out_since is None:
            self._out_since = now
        self._misses += 1
        problem = answer.problem or f"{answer.collector} accepts this pilot, but HTCondor's startd has sent no update"
        if self._misses >= _MANY and now - self._out_since > self._grace(answer):
            await self._change(False, answer.collector, self.state.updated, problem)
        if self._limit and now - self._began > self._limit and not self._was_in:
            self._end(f"the slot was not in the pool within {self._limit:g} s: {problem}")

    def _grace(self, answer: Answer) -> float:
        """Return how long the slot may be missing before it is reported, in seconds."""
        assert self._out_since is not None
        if self.state.in_pool:
            return _LOST_SECONDS
        if not answer.identity:
            return _STARTING_SECONDS if answer.late else 0.0
        if self._up_at is None:
            return _STARTING_SECONDS
        return max(0.0, self._up_at - self._out_since) + _JOINING_SECONDS

    async def _change(self, in_pool: bool, collector: str, updated: float | None, problem: str) -> None:
        before = self.state
        since = before.since if before.in_pool == in_pool else time.time()
        self.state = PoolState(
            in_pool=in_pool,
            slot=before.slot,
            collector=collector,
            since=since,
            updated=updated,
            ever=self._was_in,
            problem=problem,
        )
        if (in_pool, problem) != (before.in_pool, before.problem):
            level = logging.INFO if in_pool else logging.ERROR
            logger.log(level, "%s.", capitalized(self.state.sentence))
        await self._report(LOG, self.state.text())
