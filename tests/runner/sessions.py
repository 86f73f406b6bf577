"""Sessions of tests. Pods and jobs carry the name of their session, so that they can be found and removed.

The main process of a session removes them at the end. A session that was killed cannot do so. Its pods would keep the
node's processors from the tests of others, and its jobs would take their slots. Therefore the next session on this
machine removes them. The main process locks (flock) a file, so that other sessions know that its session lives. The
lock ends with the process.
"""

import fcntl
import secrets
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from lab import testbed
from lab.api import Lab
from lab.errors import LabError
from lab.phases import CLEAN_UP, phase
from lab.pilot import DISCARD_GRACE_S
from lab.settings import ACCESS_POINT, POOL_NAMESPACE, SESSION_ATTRIBUTE, SESSION_LABEL, Settings

KINDS: Final = "namespaces,deployments,jobs,pods,priorityclasses"
"""Kinds of the objects with the label. Controllers come before pods, which they would make again."""


class Session:
    """The session of this process and its workers."""

    def __init__(self, name: str = "") -> None:
        self.name = name or secrets.token_hex(6)
        self._file: IO[str] | None = None

    def begin(self, folder: Path) -> None:
        """Lock the session's file, so that other sessions see that it lives. Call it before the first deployment."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f".{self.name}"
        self._file = file.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        file.rename(folder / self.name)  # a file without a lock means that its session has ended

    def end(self, lab: Lab) -> None:
        """Remove the session's pods and jobs if it has begun. The pods end later.

        Raises:
            LabError: the removal failed. The next session tries again.
        """
        if self._file is not None:
            _remove(lab, folder_of(lab.settings) / self.name)
            self._file.close()


def folder_of(settings: Settings) -> Path:
    """Return the folder with the files of all sessions that use one cluster from this machine."""
    return settings.cache / "test-sessions" / testbed.facts_file(settings).stem


def lock(file: IO[str]) -> bool:
    """Lock a file (flock) unless another process has locked it; return whether it is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_ended(lab: Lab) -> None:
    """Remove pods and jobs of sessions whose main processes have ended without doing so. Raises LabError."""
    problems = []
    for path in folder_of(lab.settings).glob("[!.]*"):
        with suppress(FileNotFoundError), path.open() as file:
            if not lock(file):  # the session lives
                continue
            try:
                _remove(lab, path)
            except LabError as problem:
                problems.append(str(problem))
    if problems:
        raise LabError("; ".join(problems))


@phase(CLEAN_UP)
def _remove(lab: Lab, file: Path) -> None:
    which = ("-l", f"{SESSION_LABEL}={file.name}", "--all-namespaces", "--ignore-not-found")
    lab.kubectl("delete", KINDS, *which, "--wait=false", f"--grace-period={DISCARD_GRACE_S}")
    those = f"""-constraint '{SESSION_ATTRIBUTE} == "{file.name}"'"""
    # condor_rm fails if no job matches. root may remove the jobs of all users.
    script = f'found=$(condor_q -allusers {those} -af ClusterId) && {{ test -z "$found" || condor_rm {those}; }}'
    lab.kubectl("exec", "-n", POOL_NAMESPACE, ACCESS_POINT, "--", "sh", "-c", script)
    file.unlink(missing_ok=True)
