"""The watch of the pod's processes: a pilot in whose pod no process can be started ends.

The kubelet limits the processes of a pod (podPidsLimit). A job's processes end with the job, with one exception: with
CRI-O and the level `restricted`, a job can kill payload-init and leave processes that no other process of the pod may
signal. If they use up the limit, no container can start, and HTCondor would take one job after another and return each
of them. Only the end of the pod ends them. So this watch is part of the HTCondor agent, which runs with `restricted`.

A pod with several payload containers has no such watch: the processes can be those of a job that runs, and the end of
the pilot would end its neighbours.
"""

import asyncio
import logging
import re
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from k8spilot.condor.daemons.log_lines import LogLine

logger = logging.getLogger(__name__)

_REFUSED: Final = re.compile(r"Create Process: fork\(\) for '[^']*' failed: Resource temporarily unavailable \(\d+\)")
"""Log line of a startd that cannot start a starter (daemon_core.cpp, Create_Process)."""
_SHORTAGE_SECONDS: Final = 120.0
"""How long no processes can be started before the pilot ends. The runtime may still be ending those of a job."""
_PAUSE_SECONDS: Final = 5.0
_ROOM: Final = 16
"""Processes and threads that a starter, a docker client and a runtime need, roughly."""


async def has_room() -> bool:
    """Return whether the pod can have some more processes, by starting and ending them."""
    started: list[Process] = []
    try:
        for _ in range(_ROOM):
            process = await asyncio.create_subprocess_exec("sleep", "60", stdin=DEVNULL, stdout=DEVNULL)
            started.append(process)
    except OSError:
        return False
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
        for process in started:
            await process.wait()
    return True


class ProcessWatch:
    """Tries to start processes when HTCondor could not start one.

    A client of the startd's port, such as a job, could forge the line of the log. So a line only makes the watch try.
    """

    def __init__(
        self,
        end: Callable[[str], None],
        *,
        seconds: float = _SHORTAGE_SECONDS,
        pause: float = _PAUSE_SECONDS,
        has_room: Callable[[], Awaitable[bool]] = has_room,
    ) -> None:
        self._end = end
        """Ends the pilot, with a sentence. The exit code is 0: with another one, the kubelet would keep the pod and try
        to start the container again (restartPolicy OnFailure), which needs a process."""
        self._seconds = seconds
        self._pause = pause
        self._has_room = has_room
        self._woken = asyncio.Event()

    def handle_line(self, log: str, line: LogLine) -> None:
        """Begin to try if the startd's log says that a process could not be started."""
        if log == "StartLog" and _REFUSED.fullmatch(line.message):
            self._woken.set()

    async def run(self) -> None:
        """Watch until cancelled, or until the end of the pilot is requested."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            began = time.monotonic()
            while not await self._has_room():
                if time.monotonic() - began > self._seconds:
                    why = (
                        f"for {self._seconds:.0f} s no process could be started in the pod; its jobs have used up the "
                        "processes that the kubelet allows it (podPidsLimit)"
                    )
                    logger.error("Ending the pilot: %s.", why)
                    self._end(why)
                    return
                await asyncio.sleep(self._pause)
            await asyncio.sleep(self._pause)
