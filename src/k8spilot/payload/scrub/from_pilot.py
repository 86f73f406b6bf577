"""Removal of jobs' leftovers by root in the pilot container.

Files in a job's container vanish with the container. The rest belongs to the pod: the scratch volumes (/tmp and
/var/tmp of the payload), shared memory and message queues, and System V IPC. HTCondor also runs programs as the jobs'
account in the pilot container (condor_ssh_to_job's sshd, transfer plugins), whose processes and files are removed
there. Removal happens twice: before HTCondor transfers the next job's files, which any process of the account could
read and change, and when the previous job's container is proven gone.

Jobs created all of this, so that nothing in it is trusted. tidy (payload_init/tidy.c) removes it, in a separate process
with a time limit.
"""

import asyncio
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.common.aio import shielded
from k8spilot.common.errors import PayloadLost, PilotError
from k8spilot.common.files import LIBEXEC
from k8spilot.payload.scrub import processes
from k8spilot.payload.scrub.scrubber import ARRIVE_SECONDS, SCRUB_SECONDS, SHARED, UNLOCK_SECONDS, clear, stays_locked
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.server import PayloadInitServer

TIDY_OF_ROOT: Final = LIBEXEC / "tidy"
"""Path of tidy in the image: root runs no program from a volume of the pod."""

PILOT_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run/lock"))  # noqa: S108 -- the point is to clean them
"""Folders of the pilot container in which every account can write."""

_RECOVERY: Final = re.compile(r"dir_\d+\.recover")
"""The startd's record of a starter's container, which it removes after the starter's death (util.cpp)."""


class Leftovers:
    """Places in which jobs of one payload container can leave files or processes.

    All methods block: call them in a thread.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        uid: int,
        shared: Sequence[Path] = SHARED,
        *,
        tidy: Path = TIDY_OF_ROOT,
        cgroup: str | None = None,
        sandboxes: Path | None = None,
    ) -> None:
        self._folders = folders
        self._uid = uid
        self._shared = shared
        """Folders in which other users have files, too."""
        self._tidy = tidy
        self._cgroup = cgroup
        """Control group of the pilot container, which distinguishes its processes from the payload container's."""
        self._sandboxes = sandboxes
        """HTCondor's folder of the jobs' sandboxes. Everything in it except the startd's own files is a leftover."""

    def clean(self) -> None:
        """Remove all leftovers.

        Raises:
            PilotError: something cannot be removed; the container must not be given to another job.
        """
        try:
            if self._cgroup is not None:
                processes.end_leftovers(self._uid, self._cgroup)
            self._run("clean", self._uid, *self._folders, "--", *self._shared)
        except (OSError, subprocess.SubprocessError) as error:
            raise _stays(error) from error

    def end_strays(self) -> None:
        """End processes of the jobs' user outside of the pilot container, except payload-init.

        Raises:
            PilotError: some do not end.
        """
        try:
            if self._cgroup is not None:
                processes.end_strays(self._uid, self._cgroup)
        except OSError as error:
            raise PilotError(f"the lost job's processes end when the next job comes ({error})") from error

    def kill_all(self) -> None:
        """Kill all processes of the jobs' user in the pod at once, payload-init too."""
        if self._cgroup is not None:
            processes.kill_all(self._uid)

    def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor left. Call it when HTCondor has none of a job.

        HTCondor removes each at its job's end, with programs that it starts. If the job has taken all processes of the
        pod, HTCondor gives up. A sandbox that appears meanwhile stays: it belongs to another job.

        Raises:
            PilotError: one cannot be removed; the slot must take no other job.
        """
        if self._sandboxes is None:
            return
        try:
            with suppress(FileNotFoundError):
                left = [path for path in self._sandboxes.iterdir() if not _RECOVERY.fullmatch(path.name)]
                if left:
                    self._run("delete", *left)
        except (OSError, subprocess.SubprocessError) as error:
            raise _stays(error) from error

    def unlock(self) -> None:
        """Unlock for the job's user what the job locked in its sandbox (chmod 000).

        HTCondor reads outputs as that user, and silently treats an unreadable folder as empty. Call it when no process
        of the job is left.

        Raises:
            PilotError: it failed or took too long; files that are still locked are not transferred.
        """
        if self._sandboxes is None:
            return
        try:
            self._run("unlock", self._uid, self._sandboxes, seconds=UNLOCK_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise stays_locked(_words(error)) from error

    def _run(self, *arguments: str | int | Path, seconds: float | None = None) -> None:
        command = [str(word) for word in (self._tidy, *arguments)]
        limit = SCRUB_SECONDS if seconds is None else seconds
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, cwd="/")


def _stays(error: Exception) -> PilotError:
    return PilotError(
        f"the last job's leftovers cannot be removed ({_words(error)}); the slot takes no job until that is corrected"
    )


def _words(error: Exception) -> str:
    """Return tidy's message, or else the error."""
    message = error.stderr.decode(errors="replace").strip() if isinstance(error, subprocess.CalledProcessError) else ""
    return (message or str(error))[:200]


class PilotScrubber:
    """Scrubber that works as root."""

    needs_container = False

    def __init__(self, leftovers: Leftovers, init_server: PayloadInitServer) -> None:
        self._leftovers = leftovers
        self._init_server = init_server
        """Server of payload-init."""

    async def before_files(self) -> None:
        """End all processes of the jobs' user, and remove their files in a thread."""
        if not await self._clear():
            await _in_thread(self._leftovers.kill_all)
        await _in_thread(self._leftovers.clean)

    async def remove_sandboxes(self) -> None:
        """Remove leftover sandboxes in a thread."""
        await _in_thread(self._leftovers.remove_sandboxes)

    async def clean(self, _channel: Channel) -> None:
        """Repeat the removal except for sandboxes: HTCondor has run programs for the next job since."""
        await self.before_files()

    async def rescue(self, _channel: Channel | None) -> None:
        """End processes of a lost job in a thread."""
        await _in_thread(self._leftovers.end_strays)

    async def _clear(self) -> bool:
        """Let payload-init end all other processes of its user; end it if it does not. Return whether it did."""
        with suppress(TimeoutError, PayloadLost):
            async with asyncio.timeout(ARRIVE_SECONDS):
                channel = await self._init_server.until(lambda _: True)
            if await clear(channel):
                return True
            channel.kill()  # its last job may have stopped it
        return False

    async def unlock(self, _channel: Channel) -> None:
        """Unlock the sandbox in a thread."""
        await _in_thread(self._leftovers.unlock)


async def _in_thread(work: Callable[[], None]) -> None:
    """Do blocking work in a thread, and wait for its end, also if the caller is cancelled meanwhile.

    A late removal could hit the files of the next job.

    Raises:
        PilotError: raised by the work; or no thread can be started, and the work is not done later either.
    """
    is_wanted = True

    def unless_given_up() -> None:
        if is_wanted:
            work()

    try:
        doing = asyncio.get_running_loop().run_in_executor(None, unless_given_up)
    except RuntimeError as error:  # the executor keeps work in its queue for which it could not start a thread
        is_wanted = False
        raise PilotError(f"no thread can be started in the pilot ({error})") from error
    try:
        await shielded(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        doing.exception()
        raise
