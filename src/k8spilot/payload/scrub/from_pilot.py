"""Removal of what jobs leave, by root in the pilot container.

What a job leaves in its container goes with the container. What stays belongs to the pod: the scratch volumes (/tmp
and /var/tmp of the payload), shared memory and message queues, and System V IPC. HTCondor runs programs as the jobs'
account in the pilot container, too (condor_ssh_to_job's sshd, transfer plugins): processes and files of that account
are removed there as well. That is done twice: before HTCondor brings the next job's files, which any process of the
account could read and change, and when the container of the job before is proven gone.

Jobs made all of this, so nothing in it is trusted. tidy (payload_init/tidy.c) removes it, in a process of its own with
a time limit.
"""

import asyncio
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.common.aio import first_of, is_set
from k8spilot.common.errors import PayloadLost, PilotError
from k8spilot.payload.scrub import processes
from k8spilot.payload.scrub.scrubber import ARRIVE_SECONDS, SCRUB_SECONDS, SHARED, UNLOCK_SECONDS, stays_locked
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.server import PayloadInitServer

TIDY_OF_ROOT: Final = Path("/opt/k8spilot/libexec/tidy")
"""Where the image has tidy: root runs nothing that lies in a volume of the pod's."""

PILOT_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run/lock"))  # noqa: S108 -- the point is to clean them
"""Where every account can write in the pilot container."""

_RECOVERY: Final = re.compile(r"dir_\d+\.recover")
"""The startd's note of a starter's container, by which it removes that when the starter has died (util.cpp)."""
_CLEAR_SECONDS: Final = 5.0


class Leftovers:
    """The places where jobs of one payload container can leave something. All methods block: call them in a thread."""

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
        """Folders in which others have files, too."""
        self._tidy = tidy
        self._cgroup = cgroup
        """The pilot container's control group, by which its processes are told from the payload container's."""
        self._sandboxes = sandboxes
        """HTCondor's folder of the jobs' sandboxes. All else in it but the startd's own files is left over."""

    def clean(self) -> None:
        """Remove all that jobs left.

        Raises:
            PilotError: something cannot be removed; the container must not be given to another job.
        """
        try:
            if self._cgroup is not None:
                processes.end_leftovers(self._uid, self._cgroup)
            self._run("clean", self._uid, *self._folders, "--", *self._shared)
        except (OSError, subprocess.SubprocessError) as error:
            raise _stays(error) from error

    def kill_all(self) -> None:
        """Kill all processes of the jobs' user in the pod at once, payload-init too."""
        if self._cgroup is not None:
            processes.kill_all(self._uid)

    def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor has left. To be called when it has none of a job.

        It removes each at its job's end, with programs that it starts; where the job has taken all processes that the
        pod may have, it gives up. What comes meanwhile stays: it is another job's.

        Raises:
            PilotError: one cannot be removed; there must be no other job.
        """
        if self._sandboxes is None:
            return
        try:
            with suppress(FileNotFoundError):
                left = [one for one in self._sandboxes.iterdir() if not _RECOVERY.fullmatch(one.name)]
                if left:
                    self._run("delete", *left)
        except (OSError, subprocess.SubprocessError) as error:
            raise _stays(error) from error

    def unlock(self) -> None:
        """Give the job's user back what the job locked in its sandbox (chmod 000).

        HTCondor reads outputs as that user: it takes a folder that it cannot read for an empty one, in silence.
        To be called when no process of the job is left.

        Raises:
            PilotError: that failed, or took too long; what is locked still does not come back.
        """
        if self._sandboxes is None:
            return
        try:
            self._run("unlock", self._uid, self._sandboxes, seconds=UNLOCK_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise stays_locked(_words(error)) from error

    def _run(self, *arguments: str | int | Path, seconds: float | None = None) -> None:
        command = [str(one) for one in (self._tidy, *arguments)]
        limit = SCRUB_SECONDS if seconds is None else seconds
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, cwd="/")


def _stays(error: Exception) -> PilotError:
    return PilotError(
        f"what the last job left cannot be removed ({_words(error)}); the slot takes no job until that is mended"
    )


def _words(error: Exception) -> str:
    """What tidy says, or else the error."""
    said = error.stderr.decode(errors="replace").strip() if isinstance(error, subprocess.CalledProcessError) else ""
    return (said or str(error))[:200]


class PilotScrubber:
    """Scrubs as root."""

    needs_container = False

    def __init__(self, leftovers: Leftovers, init_server: PayloadInitServer) -> None:
        self._leftovers = leftovers
        self._init_server = init_server
        """Where payload-init is."""

    async def before_files(self) -> None:
        """End all processes of the jobs' user, and remove their files in a thread."""
        if not await self._clear():
            await _in_thread(self._leftovers.kill_all)
        await _in_thread(self._leftovers.clean)

    async def remove_sandboxes(self) -> None:
        """Remove them in a thread."""
        await _in_thread(self._leftovers.remove_sandboxes)

    async def clean(self, _channel: Channel) -> None:
        """Do the same again, but for sandboxes: HTCondor has run programs of the next job's since."""
        await self.before_files()

    async def _clear(self) -> bool:
        """Have payload-init end all else of its user; whether it did.

        A search for processes one by one finds none of those that replace themselves all the time.
        """
        with suppress(TimeoutError, PayloadLost):
            async with asyncio.timeout(ARRIVE_SECONDS):
                channel = await self._init_server.until(lambda _: True)
            cleared = channel.clear()
            await first_of(cleared, channel.closed, seconds=_CLEAR_SECONDS)
            if is_set(cleared):
                return True
            channel.kill()  # its last job may have stopped it
        return False

    async def unlock(self, _channel: Channel) -> None:
        """Unlock it in a thread."""
        await _in_thread(self._leftovers.unlock)


async def _in_thread(work: Callable[[], None]) -> None:
    """Do blocking work in a thread, and stay until it is done, also when the caller is cancelled meanwhile.

    What it removes could be the next job's by then.

    Raises:
        PilotError: of the work; or there is no thread to be had, and it is not done later either.
    """
    is_wanted = True

    def unless_given_up() -> None:
        if is_wanted:
            work()

    try:
        doing = asyncio.get_running_loop().run_in_executor(None, unless_given_up)
    except RuntimeError as error:  # the executor keeps in its queue what it could begin no thread for
        is_wanted = False
        raise PilotError(f"no thread can be started in the pilot ({error})") from error
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        doing.exception()
        raise
