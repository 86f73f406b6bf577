"""Whether HTCondor's daemons answer, asked at their own command ports; one that hangs is ended, and another one comes.

A daemon that hangs takes no command and keeps its claim: for the pool the slot is busy as long as a lease lasts. A
job can make one hang: a daemon waits a second for the rest of a packet, and then for the next connection's. HTCondor
has a keep-alive of its own (NOT_RESPONDING_TIMEOUT), which nobody heeds for the master.
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

from k8spilot.condor.daemon_logs import MASTER, STARTD
from k8spilot.condor.folders import Folders

logger = logging.getLogger(__name__)

LOG: Final = "Liveness"
JOB_LOG: Final = "LivenessOfJob"
"""The names under which ends of daemons and of jobs are told of, where others are files of HTCondor's."""

_QUESTION: Final = struct.pack(">?Iq", True, 8, 60045)
"""DC_QUERY_INSTANCE (condor_commands.h) in a packet of CEDAR's (reli_sock.cpp): whether it is the last one, the length
of what follows, the number of the command."""

Heed = Callable[[str, str], Awaitable[None]]

_EVERY_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a daemon may be silent. A busy one is for some seconds, and only one that hangs for so long.

    With the time until another daemon is there (10 s for a startd, the kubelet's for a master) the slot is fit again
    within two minutes.
    """

    with_job_seconds: float = 60.0
    """Until its slot's job is ended, which may be what it hangs by."""
    seconds: float = 85.0
    """Until the daemon itself is."""


_ADDRESS: Final = re.compile(r"<\[?([0-9A-Fa-f.:]+?)\]?:(\d+)[?>]")
"""The beginning of a daemon's address file (condor_sinful.cpp)."""
_FILES: Final = {MASTER: ".master_address", STARTD: ".startd_address"}
"""Program -> its address file in LOG (MASTER_ADDRESS_FILE, STARTD_ADDRESS_FILE)."""


async def end_hanging_daemons(folders: Folders, above: int, heed: Heed, *, patience: Patience | None = None) -> None:
    """Ask the master and the startd again and again, until cancelled; end one that has been silent for too long.

    The master starts another startd. An end of the master is the end of its container, which the kubelet starts again.

    Args:
        folders: where HTCondor's files are.
        above: the process whose child the master is.
        heed: gets JOB_LOG and a sentence when the job is to be ended, LOG and a sentence for a daemon that was.
        patience: how long a daemon may be silent.
    """
    async with asyncio.TaskGroup() as tasks:
        for program, file in _FILES.items():
            looking = _look_after(program, folders.log / file, above, heed, patience or Patience())
            tasks.create_task(looking, name=f"{program} answers")


async def _look_after(program: str, file: Path, above: int, heed: Heed, patience: Patience) -> None:
    loop = asyncio.get_running_loop()
    pause = min(_EVERY_SECONDS, patience.seconds / 5)
    silent, is_told = 0.0, False
    while True:
        began = loop.time()
        await asyncio.sleep(pause)
        if await _answers(file):
            silent, is_told = 0.0, False
            continue
        # If this process itself was held up, the daemon has not been silent for all of that time.
        silent += min(loop.time() - began, pause + _ANSWER_SECONDS)
        words = f"{program} has not answered on its command port for {silent:.0f} s"
        if silent >= patience.seconds and is_told and (daemon := _find(program, above)) is not None:
            logger.warning("HTCondor's %s; it is killed, and started again.", words)
            with suppress(psutil.NoSuchProcess):
                daemon.send_signal(signal.SIGKILL)
            await heed(LOG, f"{words}; it was killed, and is started again")
            silent, is_told = 0.0, False
        elif silent >= patience.with_job_seconds and not is_told:
            is_told = True
            await heed(JOB_LOG, f"{words}, which a job can bring about; the one that runs here is ended")


async def _answers(file: Path) -> bool:
    """Whether a daemon lives, or is not there at all.

    It is asked which instance it is. That is what nobody needs a token for, and what it does not log.
    """
    try:
        found = _ADDRESS.match(file.read_text())
        if found is None:
            return True
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(found[1], int(found[2]))
            try:
                writer.write(_QUESTION)
                await reader.read(1)
            finally:
                writer.close()
    except TimeoutError:
        return False
    except (OSError, ValueError):  # nobody listens there: what has ended is started again by who sees that
        return True
    return True


def _find(program: str, above: int) -> psutil.Process | None:
    """The daemon that runs `program`; `above` is the process whose child the master is."""
    with suppress(psutil.NoSuchProcess):
        masters = [one for one in psutil.Process(above).children() if _is(one, MASTER)]
        daemons = masters if program == MASTER else [one for master in masters for one in master.children()]
        return next((one for one in daemons if _is(one, program)), None)
    return None


def _is(process: psutil.Process, program: str) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == program
    return False
