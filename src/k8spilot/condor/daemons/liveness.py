"""Liveness checks of HTCondor's daemons at their command ports. A daemon that hangs is killed, and restarts.

A daemon that hangs takes no command and keeps its claim: for the pool the slot stays busy until a lease ends. A job can
make a daemon hang: a daemon waits a second for the rest of a packet, and then for the next connection's. HTCondor has
its own keep-alive (NOT_RESPONDING_TIMEOUT), but nothing acts on it for the master.
"""

import asyncio
import logging
import re
import signal
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from k8spilot.condor.daemons.logs import MASTER, STARTD
from k8spilot.condor.folders import Folders

logger = logging.getLogger(__name__)

LOG: Final = "Liveness"
JOB_LOG: Final = "LivenessOfJob"
"""Log names for ends of daemons and of jobs. Other log names are files of HTCondor."""

_QUERY: Final = struct.pack(">?Iq", True, 8, 60045)
"""DC_QUERY_INSTANCE (condor_commands.h) in a CEDAR packet (reli_sock.cpp): the last-packet flag, the length of the
payload, the command number."""

LineHandler = Callable[[str, str], Awaitable[None]]

_INTERVAL_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """Limits of a daemon's silence, in seconds. A busy daemon is silent for some seconds only.

    With the time until a new daemon runs (10 s for a startd, the kubelet's back-off for a master) the slot is usable
    again within two minutes.
    """

    with_job_seconds: float = 60.0
    """Silence after which the jobs of all slots are ended, because one may be the cause; default 60."""
    seconds: float = 85.0
    """Silence after which the daemon is killed; default 85."""


_ADDRESS: Final = re.compile(r"<\[?([0-9A-Fa-f.:]+?)\]?:(\d+)[?>]")
"""Beginning of a daemon's address file (condor_sinful.cpp)."""
_FILES: Final = {MASTER: ".master_address", STARTD: ".startd_address"}
"""Program -> its address file in LOG (MASTER_ADDRESS_FILE, STARTD_ADDRESS_FILE)."""


async def end_hanging_daemons(
    folders: Folders, master_parent: int, handle_line: LineHandler, *, limits: SilenceLimits | None = None
) -> None:
    """Query the master and the startd until cancelled. Kill a daemon that has been silent for too long.

    The master starts a new startd. The end of the master ends its container, which the kubelet restarts.

    Args:
        folders: paths of HTCondor's files.
        master_parent: process ID of the master's parent.
        handle_line: receives JOB_LOG and a sentence when the jobs should be ended, LOG and a sentence after a daemon
            was killed.
        limits: limits of a daemon's silence.
    """
    async with asyncio.TaskGroup() as tasks:
        for program, file in _FILES.items():
            checking = _check(
                program,
                folders.log / file,
                master_parent=master_parent,
                handle_line=handle_line,
                limits=limits or SilenceLimits(),
            )
            tasks.create_task(checking, name=f"{program} answers")


async def _check(
    program: str, file: Path, *, master_parent: int, handle_line: LineHandler, limits: SilenceLimits
) -> None:
    loop = asyncio.get_running_loop()
    pause = min(_INTERVAL_SECONDS, limits.seconds / 5)
    silent, is_reported = 0.0, False
    while True:
        began = loop.time()
        await asyncio.sleep(pause)
        if await _answers(file):
            silent, is_reported = 0.0, False
            continue
        # If this process itself was delayed, the daemon was not silent for all of that time.
        silent += min(loop.time() - began, pause + _ANSWER_SECONDS)
        message = f"{program} has not answered on its command port for {silent:.0f} s"
        if silent >= limits.seconds and is_reported and (daemon := _find(program, master_parent)) is not None:
            logger.warning("HTCondor's %s; killing it, so that it restarts.", message)
            with suppress(psutil.NoSuchProcess):
                daemon.send_signal(signal.SIGKILL)
            await handle_line(LOG, f"{message}; it was killed, and restarts")
            silent, is_reported = 0.0, False
        elif silent >= limits.with_job_seconds and not is_reported:
            is_reported = True
            await handle_line(JOB_LOG, f"{message}, which a job can cause; ending the jobs of this pilot")


async def _answers(file: Path) -> bool:
    """Return whether a daemon answers or does not exist.

    The query asks for the daemon's instance. It needs no token, and the daemon does not log it.
    """
    try:
        address = _ADDRESS.match(file.read_text())
        if address is None:
            return True
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(address[1], int(address[2]))
            try:
                writer.write(_QUERY)
                await reader.read(1)
            finally:
                writer.close()
    except TimeoutError:
        return False
    except (OSError, ValueError):  # no listener: the parent restarts a daemon that has ended
        return True
    return True


def _find(program: str, master_parent: int) -> psutil.Process | None:
    """Return the process that runs `program`; `master_parent` is the process ID of the master's parent."""
    with suppress(psutil.NoSuchProcess):
        masters = [process for process in psutil.Process(master_parent).children() if _runs(process, MASTER)]
        daemons = masters if program == MASTER else [process for master in masters for process in master.children()]
        return next((process for process in daemons if _runs(process, program)), None)
    return None


def _runs(process: psutil.Process, program: str) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == program
    return False
