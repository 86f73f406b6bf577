"""The folders that the pilot container writes to, whose root file system may be read-only.

Each can be a volume. The kubelet makes an emptyDir writable for all, and keeps it when it starts the container anew; a
container's own folder is neither.
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
"""Each with the mode that it has in the image."""

_MOUNTS: Final = Path("/proc/self/mountinfo")


def make_fresh(root: Path = Path("/"), mounts: Path = _MOUNTS) -> None:
    """Make those that are volumes as they are in a new container. To be called before anything else runs in it.

    Raises:
        PreflightError: one cannot be made so.
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
                f"{error.filename} cannot be made ready ({error.strerror}); let {path} be an emptyDir of the pilot "
                "container's own, or part of its image"
            ) from error


def shut_termination_log(log: Path = Path("/dev/termination-log")) -> None:
    """Keep the pilot container's termination log from the jobs' account, under which users' programs run there.

    It is a file on the node's disk that no limit counts, and the kubelet makes it writable for all. Where nobody is
    root it stays so, and users' programs are confined (condor/starter.c).

    Raises:
        PreflightError: it cannot be done.
    """
    if os.geteuid() == 0 and log.exists():
        try:
            log.chmod(0o600)
        except OSError as error:
            raise PreflightError(
                f"{log} cannot be kept from jobs ({error.strerror}); let the pilot container have the capability FOWNER"
            ) from error


def read_only(root: Path = Path("/")) -> Iterator[Path]:
    """Those that are there and cannot be written to."""
    for path in FOLDERS:
        folder = root / path.relative_to("/")
        if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
            yield path


def _empty(folder: Path, points: AbstractSet[Path]) -> None:
    """Remove all in `folder` but other mounts and the way to them."""
    for child in folder.iterdir():
        if child in points:
            continue
        if any(child in point.parents for point in points):
            _empty(child, points)
        elif child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()
