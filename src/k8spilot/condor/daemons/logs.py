"""Log lines of HTCondor's daemons: copied to the pilot's log, and handled where they concern the pilot."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

import psutil

from k8spilot.condor.daemons.log_follower import LogFollower
from k8spilot.condor.daemons.log_lines import JobLines, LogLine
from k8spilot.condor.folders import Folders
from k8spilot.supervisor.plan import NO_RESTART

logger = logging.getLogger(__name__)

DAEMONS: Final = {"MasterLog": "condor.master", "StartLog": "condor.startd"}
"""File in LOG -> name of the logger for its lines."""

MASTER: Final = "condor_master"
STARTD: Final = "condor_startd"

_END_OF_STARTD: Final = re.compile(r"The STARTD \(pid \d+\) exited with status (0|99)\b")
"""The master's log line about a regular end of the startd: drained, unclaimed for too long (99, DAEMON_NO_RESTART), or
ended by condor_off or condor_restart (condor_master.V6/masterDaemon.cpp, Exited). A crashed startd has another status,
and the master restarts it."""
_ANEW_SECONDS: Final = 10.0
"""Seconds within which another startd follows after condor_restart, and after a jump of the clock (MAX_TIME_SKIP)."""

_CLAIM: Final = re.compile(r"(<[^<>\s]*>#\d+#\d+#)(?!\.\.\.)[^\s)]*")
"""ClaimId with its secret part, which gives its holder control of the slot (condor_claimid_parser.h)."""

LAST_LINES_SECONDS: Final = 1.0
"""Limit of the last read of the logs, in seconds."""
_RETRY_SECONDS: Final = 60.0
_BEFORE: Final = 100


def end_of_startd(log: str, line: str) -> int | None:
    """Return the exit status of the startd, if a line of the log `log` reports its regular end.

    The line may be forged: a client that reaches a daemon's port, such as the job, can put text with line breaks into
    its log (daemon_command.cpp logs the name of an unknown session). `startd_runs` verifies it.
    """
    match = _END_OF_STARTD.search(line) if log == "MasterLog" else None
    return None if match is None else int(match[1])


async def startd_has_ended(log: str, line: str, master_parent: int, seconds: float = _ANEW_SECONDS) -> bool:
    """Return whether a line of the log `log` reports the final end of the startd, and no startd runs any more.

    After a condor_restart the master starts another startd without a log line, so wait some seconds for one.

    Args:
        log: name of the file.
        line: line of the log.
        master_parent: process ID of the master's parent.
        seconds: time in which another startd may follow.
    """
    status = end_of_startd(log, line)
    if status is None:
        return False
    if startd_runs(master_parent):
        logger.warning("HTCondor's log reports the end of its startd, but a startd runs; the line may be forged.")
        return False
    if status != NO_RESTART:
        await asyncio.sleep(seconds)
    return not startd_runs(master_parent)


def startd_runs(master_parent: int) -> bool:
    """Return whether a master that is a child of the process `master_parent` has a startd."""
    with suppress(psutil.NoSuchProcess):
        for master in psutil.Process(master_parent).children():
            with suppress(psutil.NoSuchProcess):
                if master.name() == MASTER and any(_is_startd(child) for child in master.children()):
                    return True
    return False


def _is_startd(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == STARTD and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


def masked(line: str) -> str:
    """Return a log line without the secret parts of claims, as HTCondor itself writes most of them (`#...`)."""
    return _CLAIM.sub(r"\1...", line)


async def copy_logs(
    folders: Folders,
    handle_line: Callable[[str, str], Awaitable[None]],
    *,
    include_existing: bool = False,
    ending: asyncio.Event | None = None,
) -> None:
    """Copy new log lines, and pass each to `handle_line`: name of the file, line.

    Args:
        folders: folders of HTCondor.
        handle_line: handler of a line; awaited before the next line of that file is read.
        include_existing: start with some existing lines, for an engine after a dead one: the end of the startd could
            have been logged in between. All handlers tolerate a line twice.
        ending: set when no more lines are expected: return after the last one. Without it, go on until cancelled.
    """
    ending = ending or asyncio.Event()
    before = _BEFORE if include_existing else 0
    with LogFollower(folders.log, DAEMONS) as follower:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(follower.run(), name="changes of HTCondor's logs")
            copying = [
                tasks.create_task(
                    _keep_copying(follower, name, handle_line, before=before, ending=ending),
                    name=name,
                )
                for name in DAEMONS
            ]
            await ending.wait()
            follower.finish()
            await asyncio.wait(copying)
            watching.cancel()


async def _keep_copying(
    follower: LogFollower,
    name: str,
    handle_line: Callable[[str, str], Awaitable[None]],
    before: int,
    ending: asyncio.Event,
) -> None:
    while True:
        try:
            await _copy(follower, name, handle_line, before)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started (limit of the pod's pids)
            if ending.is_set():
                return
            logger.warning(
                "HTCondor's log %s cannot be read (%s); trying again in %.0f s.", name, error, _RETRY_SECONDS
            )
        else:
            return  # `_copy` ends by itself only after the last line
        before = _BEFORE  # the end of the startd could be logged meanwhile
        await asyncio.sleep(_RETRY_SECONDS)


async def _copy(
    follower: LogFollower, name: str, handle_line: Callable[[str, str], Awaitable[None]], before: int
) -> None:
    daemon = logging.getLogger(DAEMONS[name])
    jobs = JobLines()
    async with aclosing(follower.lines(name, before)) as lines:
        async for content in lines:
            if line := masked(content.decode(errors="replace")):
                parts = LogLine.of(line)
                daemon.log(parts.level, "%s", parts.message)
                if name == "StartLog" and (summary := jobs.summary(parts.message)):
                    daemon.info("%s", summary)  # under HTCondor's name: a client of its port can forge such lines
                await handle_line(name, line)
