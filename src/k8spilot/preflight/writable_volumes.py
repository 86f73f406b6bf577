"""Folders that the pilot container writes to. Its root file system may be read-only.

Each folder can be a volume. The kubelet makes an emptyDir writable for everybody, and keeps its content when it
restarts the container. Neither is true for a container's own folder.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from k8spilot.common.errors import PreflightError

FOLDERS: Final = {
    Path("/run"): 0o755,
    Path("/tmp"): 0o1777,  # noqa: S108
    Path("/var/tmp"): 0o1777,  # noqa: S108
    Path("/var/lib/condor"): 0o755,
}
"""Folders, with the modes that they have in the image."""

_MOUNTS: Final = Path("/proc/self/mountinfo")


def make_fresh(root: Path = Path("/"), mounts: Path = _MOUNTS) -> None:
    """Reset the folders that are volumes to their state in a new container. Call this before other code of the pilot.

    Raises:
        PreflightError: a folder cannot be reset.
    """
    points = {Path(line.split()[4]) for line in mounts.read_text().splitlines()}
    for path, mode in FOLDERS.items():
        folder = root / path.relative_to("/")
        try:
            if os.geteuid() == 0 and folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) != mode:
                folder.chmod(mode)
            if folder in points:
                _empty(folder, points)
        except OSError as error:
            raise PreflightError(
                f"{error.filename} cannot be prepared ({error.strerror}); make {path} an emptyDir of the pilot "
                "container only, or a part of its image"
            ) from error


def shut_termination_log(log: Path = Path("/dev/termination-log")) -> None:
    """Close the pilot container's termination log to the jobs' account, under which users' programs run there.

    The log is a file on the node's disk that no limit counts, and the kubelet makes it writable for everybody. Without
    root it stays writable, and users' programs are confined (condor/starter.c).

    Raises:
        PreflightError: the mode cannot be changed.
    """
    if os.geteuid() == 0 and log.exists():
        try:
            log.chmod(0o600)
        except OSError as error:
            raise PreflightError(
                f"{log} cannot be closed to jobs ({error.strerror}); give the pilot container the capability FOWNER"
            ) from error


def read_only(root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders that exist and are read-only."""
    for path in FOLDERS:
        folder = root / path.relative_to("/")
        if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
            yield path


def _empty(folder: Path, points: AbstractSet[Path]) -> None:
    """Remove everything in `folder`, except other mounts and the paths to them."""
    for child in folder.iterdir():
        if child in points:
            continue
        if any(child in point.parents for point in points):
            _empty(child, points)
        elif child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()
