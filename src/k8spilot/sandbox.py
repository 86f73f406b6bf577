"""What a job could leave for the next one outside of its container, and its removal.

The container's own file system, its processes and their cgroup go with it. What stays belongs to the pod:
the scratch volumes (/tmp and /var/tmp of the payload), shared memory and message queues, and System V IPC,
which the pod's containers share. The job made all of this, so nothing in it is trusted: folders are walked
by descriptor without following links (shutil.rmtree does), and only what belongs to the job's uid goes where
others have files too.
"""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from k8spilot.errors import PilotError

_SHARED: Final = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108 -- the point is to clean them
_KINDS: Final = {"shm": ("shmid", "-m"), "sem": ("semid", "-s"), "msg": ("msqid", "-q")}
"""Kind of System V IPC -> column of its identifier in its table, option of ipcrm(1) that removes it."""


_IPC_OPTIONS: Final = 1000
"""Arguments for one run of ipcrm: two for each object."""


class Scratch:
    """The places where jobs of one payload container can leave something."""

    def __init__(self, folders: Sequence[Path], uid: int, shared: Sequence[Path] = _SHARED) -> None:
        self._folders = folders
        self._uid = uid
        self._shared = shared

    def clean(self) -> None:
        """Remove all that jobs left. Cheap when there is nothing. Blocks: call it in a thread.

        Raises:
            PilotError: something cannot be removed; the container must not be given to another job.
        """
        try:
            for folder in self._folders:
                for entry in _entries(folder):
                    _remove(entry)
            for folder in self._shared:
                for entry in _entries(folder):
                    # The pilot's own containers use these too, and remove what is theirs at any time.
                    with contextlib.suppress(FileNotFoundError):
                        if entry.stat(follow_symlinks=False).st_uid == self._uid:
                            _remove(entry)
            _remove_ipc(self._uid)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PilotError(
                f"what the last job left cannot be removed ({error}); the slot takes no job until that is mended"
            ) from error


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return


def _remove(entry: os.DirEntry[str]) -> None:
    if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
        shutil.rmtree(entry.path)
    else:
        os.unlink(entry.path)  # noqa: PTH108 -- an entry has a path as text


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
        command = ["ipcrm", *options[begin : begin + _IPC_OPTIONS]]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, user=uid)
