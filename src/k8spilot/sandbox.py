"""What a job could leave for the next one outside of its container, and its removal.

The container's own file system, its processes and their cgroup go with it. What stays belongs to the pod:
the scratch volumes (/tmp and /var/tmp of the payload), shared memory and message queues, and System V IPC,
which the pod's containers share. And a job's user can have programs run in the pilot container, as the jobs' account
(condor_ssh_to_job's sshd, transfer plugins): processes and files of that account are removed there as well.
The job made all of this, so nothing in it is trusted: rm(1) walks it without
following links and in memory that does not grow with its depth, in a process of its own with a time limit; and only
what belongs to the job's uid goes where others have files too.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.errors import PilotError

SHARED: Final = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108 -- the point is to clean them
"""What all containers of a pod share."""

PILOT_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run/lock"))  # noqa: S108 -- as above
"""Where every account can write in the pilot container."""

_KINDS: Final = {"shm": ("shmid", "-m"), "sem": ("semid", "-s"), "msg": ("msqid", "-q")}
"""Kind of System V IPC -> column of its identifier in its table, option of ipcrm(1) that removes it."""


_PATHS: Final = 200
"""Paths for one run of rm: each can be 4 KiB long, and a command line 128 KiB at the least."""
_SECONDS: Final = 120.0
_UNLOCK_SECONDS: Final = 10.0
"""A job that locks more than can be unlocked in this time does not get the rest of it back."""
_KILL_ROUNDS: Final = 50
_ROUND_SECONDS: Final = 0.02
_IPC_OPTIONS: Final = 1000
"""Arguments for one run of ipcrm: two for each object."""


class Scratch:
    """The places where jobs of one payload container can leave something."""

    def __init__(
        self,
        folders: Sequence[Path],
        uid: int,
        shared: Sequence[Path] = SHARED,
        cgroup: str | None = None,
        sandboxes: Path | None = None,
    ) -> None:
        self._folders = folders
        self._uid = uid
        self._shared = shared
        self._cgroup = cgroup
        """Processes of `uid` in this control group, the pilot container's, are ended."""
        self._sandboxes = sandboxes
        """HTCondor's folder of the jobs' sandboxes."""

    def clean(self) -> None:
        """Remove all that jobs left. Cheap when there is nothing. Blocks: call it in a thread.

        Raises:
            PilotError: something cannot be removed; the container must not be given to another job.
        """
        try:
            if self._cgroup is not None:
                _kill(self._uid, self._cgroup)
            for folder in self._folders:
                _remove([entry.path for entry in _entries(folder)])
            for folder in self._shared:
                _remove([entry.path for entry in _entries(folder) if self._owns(entry)])
            _remove_ipc(self._uid)
        except (OSError, subprocess.SubprocessError) as error:
            raise PilotError(
                f"what the last job left cannot be removed ({str(error)[:200]}); "
                "the slot takes no job until that is mended"
            ) from error

    def unlock(self) -> None:
        """Give the job's user back what the job locked in its sandbox (chmod 000). Blocks: call it in a thread.

        HTCondor reads outputs as that user: it takes a folder that it cannot read for an empty one, in silence.
        Done as that user, too: whatever stands in the sandbox by now, nobody else's files can be meant. To be called
        when no process of the job is left.

        Raises:
            PilotError: that failed, or took too long; what is locked still does not come back.
        """
        if self._sandboxes is None:
            return
        locked = ["(", "-type", "d", "!", "-perm", "-700", "-o", "-type", "f", "!", "-perm", "-400", ")"]
        mend = ["-execdir", "chmod", "u+rwX", "--", "{}", ";"]  # one by one: find goes on into what was locked
        try:
            _run(
                ["find", "-P", str(self._sandboxes), "-xdev", "-uid", str(self._uid), *locked, *mend],
                user=self._uid,
                seconds=_UNLOCK_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PilotError(
                f"what the job locked in its sandbox cannot be given back ({str(error)[:200]}); "
                "outputs in locked folders may be lost"
            ) from error

    def _owns(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.stat(follow_symlinks=False).st_uid == self._uid
        except FileNotFoundError:  # the pod's other containers remove what is theirs at any time
            return False


def own_cgroup() -> str:
    """The own control group, by which a container is told from the others of the pod (cgroups(7))."""
    return Path("/proc/self/cgroup").read_text()


def _kill(uid: int, cgroup: str) -> None:
    """End the processes of `uid` in a control group, those that they make meanwhile, too.

    Raises:
        OSError: some do not end.
    """
    for _ in range(_KILL_ROUNDS):
        if not (found := list(_processes(uid, cgroup))):
            return
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
    raise OSError(f"processes {', '.join(map(str, found))} of the jobs' account in the pilot container do not end")


def _processes(uid: int, cgroup: str) -> Iterator[int]:
    """List those that are not dead and that have `uid` for good; a daemon that has it for a moment has another, too."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if folder.stat().st_uid not in (uid, 0) or (folder / "cgroup").read_text() != cgroup:
                continue
            facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            if set(facts["Uid"].split()) == {str(uid)} and facts["State"].split()[0] not in "ZX":
                yield int(folder.name)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return


def _remove(paths: Sequence[str]) -> None:
    for begin in range(0, len(paths), _PATHS):
        _run(["rm", "-rf", "--one-file-system", "--", *paths[begin : begin + _PATHS]])


def _run(command: Sequence[str], user: int | None = None, seconds: float = _SECONDS) -> None:
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, user=user, cwd="/"
    )


def _remove_ipc(uid: int) -> None:
    """Remove System V shared memory, semaphores and queues of `uid` (proc_sysvipc(5)).

    As their owner: the kernel lets nobody else do it without CAP_SYS_ADMIN, which no pilot has. No job runs now that
    could signal a process of its uid.
    """
    options: list[str] = []
    for kind, (column, option) in _KINDS.items():
        table = Path("/proc/sysvipc", kind)
        if not table.exists():
            continue
        header, *rows = table.read_text().splitlines()
        names = header.split()
        for row in rows:
            values = dict(zip(names, row.split(), strict=False))
            if uid in (int(values["uid"]), int(values["cuid"])):
                options += [option, values[column]]
    for begin in range(0, len(options), _IPC_OPTIONS):
        _run(["ipcrm", *options[begin : begin + _IPC_OPTIONS]], user=uid)
