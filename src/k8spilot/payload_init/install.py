"""Putting payload-init where payload containers find it."""

import os
import shutil
from pathlib import Path
from typing import Final

from k8spilot.common.errors import PreflightError

PROGRAM: Final = Path("bin/payload-init")
"""Where payload-init lies in the exchange volume."""


TIDY: Final = Path("bin/tidy")
"""Where tidy does, which stands beside it."""

TERMINATION_LOG: Final = Path("bin/kubelet/termination-log")
"""Over which the kubelet mounts the payload container's termination log: a file on the node's disk that no limit
counts, and writable for all who come to it. No job does: the folder is the install container's user's alone."""


def install(source: Path, exchange: Path, sandboxes: Path | None = None) -> Path:
    """Copy payload-init from `source`, and tidy from beside it, into the volume at `exchange`; return where it is.

    Make the place of the termination log, which the runtime cannot make in a volume that is read-only there. Make the
    folder `sandboxes`, if one is named: what is mounted from a volume by its subPath must be there.

    Written aside and renamed, so that a container that starts meanwhile finds all of it or nothing.

    Raises:
        PreflightError: it cannot be read or written.
    """
    target = exchange / PROGRAM
    try:
        target.parent.mkdir(mode=0o755, exist_ok=True)
        if target.parent.stat().st_uid == os.geteuid():  # otherwise it is a volume's own folder
            target.parent.chmod(0o755)
        log = exchange / TERMINATION_LOG
        log.parent.mkdir(mode=0o700, exist_ok=True)
        log.parent.chmod(0o700)
        log.touch(mode=0o600)
        if sandboxes is not None:
            sandboxes.mkdir(mode=0o755, exist_ok=True)
        for program in (source.with_name(TIDY.name), source):
            aside = target.with_name(f"{program.name}.new")
            shutil.copyfile(program, aside)
            aside.chmod(0o555)
            os.replace(aside, target.with_name(program.name))  # noqa: PTH105 -- the atomic one is meant
    except OSError as error:
        raise PreflightError(
            f"payload-init cannot be copied from {source} to {target} ({error.strerror}); "
            "the exchange volume must be writable for the install container"
        ) from error
    return target
