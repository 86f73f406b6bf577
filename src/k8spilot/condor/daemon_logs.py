"""What HTCondor's daemons say, copied to the own output, and heeded where it concerns the pilot."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

import psutil

from k8spilot.condor.folders import Folders
from k8spilot.condor.log_follower import LogFollower
from k8spilot.supervisor.supervisor import NO_RESTART

logger = logging.getLogger(__name__)

DAEMONS: Final = {"MasterLog": "condor.master", "StartLog": "condor.startd"}
"""File in LOG -> logger by whose name its lines are told."""

MASTER: Final = "condor_master"
STARTD: Final = "condor_startd"

_END_OF_STARTD: Final = re.compile(r"The STARTD \(pid \d+\) exited with status (0|99)\b")
"""What the master logs of a startd that ended as it was to: drained, unclaimed for too long (99, DAEMON_NO_RESTART), or
told to by condor_off or condor_restart (condor_master.V6/masterDaemon.cpp, Exited). One that crashed has another
status, and the master starts it again."""
_ANEW_SECONDS: Final = 10.0
"""Within this time there is another startd after condor_restart, and after a jump of the clock (MAX_TIME_SKIP)."""

_CLAIM: Final = re.compile(r"(<[^<>\s]*>#\d+#\d+#)(?!\.\.\.)[^\s)]*")
"""A ClaimId with its secret part, by which whoever has it commands the slot (condor_claimid_parser.h)."""

_AGAIN_SECONDS: Final = 60.0
_BEFORE: Final = 100


def end_of_startd(log: str, line: str) -> int | None:
    """The status with which the startd has ended by itself, if a line of the log `log` says so.

    It may lie: whoever reaches a daemon's port, the job too, can have words of their own in its log, line breaks among
    them (daemon_command.cpp tells of a session that it does not know). `startd_runs` tells.
    """
    match = _END_OF_STARTD.search(line) if log == "MasterLog" else None
    return None if match is None else int(match[1])


async def startd_has_ended(log: str, line: str, above: int, seconds: float = _ANEW_SECONDS) -> bool:
    """Whether a line of the log `log` says that the startd has ended for good, and that is true.

    `above` is the process whose child the master is. Where the master may start another startd, nothing tells whether
    it will: it is given some seconds.
    """
    status = end_of_startd(log, line)
    if status is None:
        return False
    if startd_runs(above):
        logger.warning("HTCondor's log says that its startd has ended, and one runs; somebody may have forged that.")
        return False
    if status != NO_RESTART:
        await asyncio.sleep(seconds)
    return not startd_runs(above)


def startd_runs(above: int) -> bool:
    """Whether a master that is a child of the process `above` has a startd."""
    with suppress(psutil.NoSuchProcess):
        for master in psutil.Process(above).children():
            with suppress(psutil.NoSuchProcess):
                if master.name() == MASTER and any(_is_startd(one) for one in master.children()):
                    return True
    return False


def _is_startd(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == STARTD and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


def masked(line: str) -> str:
    """A line of a daemon's log without the secret parts of claims, as HTCondor itself writes most of them (`#...`)."""
    return _CLAIM.sub(r"\1...", line)


async def follow(folders: Folders, heed: Callable[[str, str], Awaitable[None]], *, before: bool = False) -> None:
    """Copy new lines of the logs until cancelled, and show each to `heed`: name of the file, line.

    Args:
        folders: where they are.
        heed: awaited before the next line of that file is read.
        before: begin with some that are there already, for an engine that follows one that died: what was logged in
            between could be the end of the startd. Nothing in these lines does harm when it is heeded twice.
    """
    with LogFollower(folders.log, DAEMONS) as follower:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follower.run(), name="changes of HTCondor's logs")
            for name in DAEMONS:
                tasks.create_task(_keep_copying(follower, name, heed, _BEFORE if before else 0), name=name)


async def _keep_copying(
    follower: LogFollower, name: str, heed: Callable[[str, str], Awaitable[None]], before: int
) -> None:
    while True:
        try:
            await _copy(follower, name, heed, before)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started (pids limit of the pod)
            logger.warning("HTCondor's log %s cannot be read (%s); again in %.0f s.", name, error, _AGAIN_SECONDS)
        before = _BEFORE  # what is logged meanwhile could be the end of the startd
        await asyncio.sleep(_AGAIN_SECONDS)


async def _copy(follower: LogFollower, name: str, heed: Callable[[str, str], Awaitable[None]], before: int) -> None:
    daemon = logging.getLogger(DAEMONS[name])
    async with aclosing(follower.lines(name, before)) as lines:
        async for content in lines:
            if line := masked(content.decode(errors="replace")):
                daemon.info("%s", line)
                await heed(name, line)
