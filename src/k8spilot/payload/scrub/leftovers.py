"""What a job could leave for the next one outside of its container, and its removal.

The container's own file system, its processes and their cgroup go with it. What stays belongs to the pod:
the scratch volumes (/tmp and /var/tmp of the payload), shared memory and message queues, and System V IPC,
which the pod's containers share. And a job's user can have programs run in the pilot container, as the jobs' account
(condor_ssh_to_job's sshd, transfer plugins): processes and files of that account are removed there as well. That is
done twice: before HTCondor brings the next job's files, which any process of the account could read and change, and
when the container of the job before is proven gone.
The job made all of this, so nothing in it is trusted: tidy (payload_init/tidy.c) walks it without following links
and in memory that does not grow with its depth, in a process of its own with a time limit, and what it has removed by
then need not be removed again; and only what belongs to the job's uid goes where others have files too.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from k8spilot.common.errors import PilotError

TIDY_OF_ROOT: Final = Path("/opt/k8spilot/libexec/tidy")
"""Where the image has tidy: root runs nothing that lies in a volume of the pod's."""

SHARED: Final = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108 -- the point is to clean them
"""What all containers of a pod share."""

PILOT_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run/lock"))  # noqa: S108 -- as above
"""Where every account can write in the pilot container."""

_KINDS: Final = {"shm": ("shmid", "-m"), "sem": ("semid", "-s"), "msg": ("msqid", "-q")}
"""Kind of System V IPC -> column of its identifier in its table, option of ipcrm(1) that removes it."""


_RECOVERY: Final = re.compile(r"dir_\d+\.recover")
"""The startd's note of a starter's container, by which it removes that when the starter has died (util.cpp)."""
_SECONDS: Final = 120.0
UNLOCK_SECONDS: Final = 10.0
"""A job that locks more than can be unlocked in this time does not get the rest of it back."""
_KILL_ROUNDS: Final = 250
_ROUND_SECONDS: Final = 0.02
_SHM_DEST: Final = 0o1000
"""In the mode of shared memory that is removed already (shmctl(2))."""
_IPC_OBJECTS: Final = 500
"""For one run of ipcrm."""


class Leftovers:
    """The places where jobs of one payload container can leave something."""

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
        self._tidy = tidy
        self._cgroup = cgroup
        """The pilot container's control group, by which its processes are told from the payload container's."""
        self._sandboxes = sandboxes
        """HTCondor's folder of the jobs' sandboxes. All else in it but the startd's own files is left over."""

    def clean(self) -> None:
        """Remove all that jobs left. Cheap when there is nothing. Blocks: call it in a thread.

        Raises:
            PilotError: something cannot be removed; the container must not be given to another job.
        """
        try:
            if self._cgroup is not None:
                _end_leftovers(self._uid, self._cgroup)
            if full := [str(folder) for folder in self._folders if any(_entries(folder))]:
                _run([str(self._tidy), "remove", *full])
            if full := [str(folder) for folder in self._shared if any(map(self._owns, _entries(folder)))]:
                _run([str(self._tidy), "of", str(self._uid), *full])
            for folder in (*self._folders, *self._shared):
                _strip(folder)
            _remove_ipc(self._uid)
        except (OSError, subprocess.SubprocessError) as error:
            raise _stays(error) from error

    def kill_all(self) -> None:
        """Kill all processes of the jobs' user in the pod at once, payload-init too. Blocks: call it in a thread.

        A pilot that is not root cannot; `clean` tells what is left.
        """
        if self._cgroup is not None:
            with suppress(OSError, subprocess.SubprocessError):  # there may be none
                _run(["sh", "-c", "kill -KILL -1"], user=self._uid)

    def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor has left. To be called when it has none of a job. Blocks: call it in a thread.

        It removes each at its job's end, with programs that it starts; where the job has taken all processes that the
        pod may have, it gives up. What comes meanwhile stays: it is another job's.

        Raises:
            PilotError: one cannot be removed; there must be no other job.
        """
        if self._sandboxes is None:
            return
        try:
            left = [one for one in _entries(self._sandboxes) if not _RECOVERY.fullmatch(one.name)]
            folders = [Path(one) for one in left if one.is_dir(follow_symlinks=False)]
            if folders:
                _run([str(self._tidy), "remove", *map(str, folders)])
            for folder in folders:
                folder.rmdir()
            for one in left:
                if not one.is_dir(follow_symlinks=False):
                    Path(one).unlink(missing_ok=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise _stays(error) from error

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
                seconds=UNLOCK_SECONDS,
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


def _stays(error: Exception) -> PilotError:
    return PilotError(
        f"what the last job left cannot be removed ({str(error)[:200]}); the slot takes no job until that is mended"
    )


def own_cgroup() -> str:
    """The own control group, by which a container is told from the others of the pod (cgroups(7))."""
    return Path("/proc/self/cgroup").read_text()


def kill_outside(uid: int, cgroup: str) -> int:
    """Kill the processes of `uid` that are not in the control group `cgroup`: those of the payload container.

    Returns:
        How many there were.
    """
    killed = 0
    for process in _processes(uid):
        if process.cgroup == cgroup:
            continue
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed


def _end_leftovers(uid: int, cgroup: str) -> None:
    """End what runs as `uid` between two jobs, and what it makes meanwhile: all but payload-init.

    Raises:
        OSError: some do not end.
    """
    for _ in range(_KILL_ROUNDS):
        left = [one.pid for one in _processes(uid) if one.cgroup == cgroup or not one.is_first]
        if not left:
            return
        for process in left:
            with suppress(ProcessLookupError, PermissionError):  # a pilot that is not root can only wait
                os.kill(process, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
    raise OSError(f"processes {', '.join(map(str, left))} of the jobs' account do not end")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    cgroup: str
    is_first: bool
    """Whether its parent is outside of the pod, as that of a container's first process is; nothing else's can be."""


def _processes(uid: int) -> Iterator[_Process]:
    """List those of the pod that are not dead and have `uid` for good: daemons have it for moments."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if folder.stat().st_uid not in (uid, 0):
                continue
            facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            if set(facts["Uid"].split()) == {str(uid)} and facts["State"].split()[0] not in "ZX":
                yield _Process(int(folder.name), (folder / "cgroup").read_text(), int(facts["PPid"]) == 0)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return


def _strip(folder: Path) -> None:
    """Remove attributes of a folder itself: whoever may write to one that is not sticky may set them (xattr(7))."""
    with suppress(FileNotFoundError):
        for name in os.listxattr(folder):
            if name.startswith("user."):
                os.removexattr(folder, name)


def _run(command: Sequence[str], user: int | None = None, seconds: float | None = None) -> None:
    user = user if os.geteuid() == 0 else None  # nobody else can be another
    limit = _SECONDS if seconds is None else seconds
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, user=user, cwd="/"
    )


def _remove_ipc(uid: int) -> None:
    """Remove System V shared memory, semaphores and queues of `uid`.

    As their owner: the kernel lets nobody else do it without CAP_SYS_ADMIN, which no pilot has. No job runs now that
    could signal a process of its uid. One may go by itself meanwhile, with the last process that had it: ipcrm fails
    then, and nothing is left.
    """
    objects = _ipc(uid)
    for begin in range(0, len(objects), _IPC_OBJECTS):
        some = objects[begin : begin + _IPC_OBJECTS]
        try:
            _run(["ipcrm", *(word for one in some for word in one)], user=uid)
        except subprocess.CalledProcessError:
            if set(some) & set(_ipc(uid)):
                raise


def _ipc(uid: int) -> list[tuple[str, str]]:
    """What there is of `uid` (proc_sysvipc(5)): the option of ipcrm(1) that removes its kind, and its identifier."""
    found: list[tuple[str, str]] = []
    for kind, (column, option) in _KINDS.items():
        table = Path("/proc/sysvipc", kind)
        if not table.exists():
            continue
        header, *rows = table.read_text().splitlines()
        names = header.split()
        for row in rows:
            values = dict(zip(names, row.split(), strict=False))
            marked = kind == "shm" and int(values["perms"], 8) & _SHM_DEST  # it goes with the last process that has it
            if uid in (int(values["uid"]), int(values["cuid"])) and not marked:
                found.append((option, values[column]))
    return found
