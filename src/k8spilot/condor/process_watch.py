"""The watch of the pod's processes: a pilot in whose pod no process can be started ends.

The kubelet limits the processes of a pod (podPidsLimit). A job's processes end with the job, with one exception: with
CRI-O and the level `restricted`, a job can kill payload-init and leave processes that no other process of the pod may
signal. If they use up the limit, no container can start, and HTCondor would take one job after another and return each
of them. Only the end of the pod ends them.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

from k8spilot.condor.log_lines import LogLine

_REFUSED: Final = re.compile(r"Create Process: fork\(\) for '[^']*' failed: Resource temporarily unavailable \(\d+\)")
"""Log line of a startd that cannot start a starter (daemon_core.cpp, Create_Process)."""
_SECONDS: Final = 120.0
"""How long no process can be started before the pilot ends. A job that uses up the processes may end meanwhile."""
_PAUSE_SECONDS: Final = 5.0


class ProcessWatch:
    """Tries to start a process when HTCondor could not start one.

    A client of the startd's port, such as a job, could forge the line of the log. So a line only makes the watch try.
    """

    def __init__(self, end: Callable[[str], None], seconds: float = _SECONDS, pause: float = _PAUSE_SECONDS) -> None:
        self._end = end
        """Ends the pilot, with a sentence. The exit code is 0: with another one, the kubelet would keep the pod and try
        to start the container again (restartPolicy OnFailure), which needs a process."""
        self._seconds = seconds
        self._pause = pause
        self._woken = asyncio.Event()

    def handle_line(self, log: str, line: LogLine) -> None:
        """Begin to try if the startd's log says that a process could not be started."""
        if log == "StartLog" and _REFUSED.fullmatch(line.message):
            self._woken.set()

    async def run(self) -> None:
        """Watch until cancelled, or until the pilot has been told to end."""
        while True:
            await self._woken.wait()
            began = time.monotonic()
            while not await _starts_a_process():
                if time.monotonic() - began > self._seconds:
                    self._end(
                        f"for {self._seconds:.0f} s no process could be started in the pod; its jobs have used up the "
                        "processes that the kubelet allows it (podPidsLimit)"
                    )
                    return
                await asyncio.sleep(self._pause)
            self._woken.clear()


async def _starts_a_process() -> bool:
    try:
        process = await asyncio.create_subprocess_exec("true")
    except BlockingIOError:  # EAGAIN: of fork(2)
        return False
    await process.wait()
    return True
