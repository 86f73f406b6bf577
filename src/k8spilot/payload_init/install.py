"""Installation of payload-init and tidy for the payload containers, which have the programs in a read-only volume.

The base mounts the volume `programs` at `bin` in the exchange folder. Payload containers mount it read-only.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from k8spilot.common.errors import PreflightError
from k8spilot.common.files import replaced

PROGRAM: Final = Path("bin/payload-init")
"""Path of payload-init in the exchange folder."""
TIDY: Final = Path("bin/tidy")
"""Path of tidy in the exchange folder."""

SOCKET: Final = "payload.sock"
"""Name of the socket in the exchange volume."""
TERMINATION_LOG: Final = Path("bin/kubelet/termination-log")
"""Path on which the kubelet mounts the payload container's termination log: a file on the node's disk that no limit
counts, and writable for everybody. No job can reach it: only the user of the install container can enter the folder."""


def _make(folder: Path) -> None:
    """Make a folder, and its parent with the mode of the volume, as the kubelet makes a subPath (kubelet_pods.go)."""
    if not folder.parent.exists():
        folder.parent.mkdir()
        folder.parent.chmod(folder.parent.parent.stat().st_mode)
    folder.mkdir(mode=0o755, exist_ok=True)


def install(source: Path, exchange: Path, folders: Iterable[Path] = ()) -> Path:
    """Copy payload-init from `source`, and tidy from the same folder, into the folder `exchange`. Return its path.

    Create the mount point of the termination log, which the runtime cannot create in a read-only volume. Create
    `folders`, parts of volumes that payload containers mount: a subPath must exist before its mount, and a mount point
    in a read-only volume, too.

    The files are renamed into place, so that a starting container sees a whole file or none.

    Raises:
        PreflightError: a file cannot be read or written.
    """
    target = exchange / PROGRAM
    try:
        target.parent.mkdir(mode=0o755, exist_ok=True)
        if target.parent.stat().st_uid == os.geteuid():  # otherwise it is the root of a volume
            target.parent.chmod(0o755)
        log = exchange / TERMINATION_LOG
        log.parent.mkdir(mode=0o700, exist_ok=True)
        log.parent.chmod(0o700)
        log.touch(mode=0o600)
        for folder in folders:
            _make(folder)
        for program in (source.with_name(TIDY.name), source):
            with replaced(target.with_name(program.name)) as aside:
                shutil.copyfile(program, aside)
                aside.chmod(0o555)
    except OSError as error:
        raise PreflightError(
            f"payload-init cannot be copied from {source} to {target} ({error.strerror}); "
            "make the exchange volume writable for the install container"
        ) from error
    return target
