"""Putting payload-init where payload containers find it."""

import os
import shutil
from pathlib import Path
from typing import Final

from k8spilot.errors import SurroundingsError

PROGRAM: Final = Path("bin/payload-init")
"""Where payload-init lies in the exchange volume."""


def install(source: Path, exchange: Path) -> Path:
    """Copy payload-init from `source` into the volume at `exchange`; return where it is.

    Written aside and renamed, so that a container that starts meanwhile finds all of it or nothing.

    Raises:
        SurroundingsError: it cannot be read or written.
    """
    target = exchange / PROGRAM
    aside = target.with_suffix(".new")
    try:
        target.parent.mkdir(mode=0o755, exist_ok=True)
        target.parent.chmod(0o755)
        shutil.copyfile(source, aside)
        aside.chmod(0o555)
        os.replace(aside, target)  # noqa: PTH105 -- the atomic one is meant
    except OSError as error:
        raise SurroundingsError(
            f"payload-init cannot be copied from {source} to {target} ({error.strerror}); "
            "the exchange volume must be writable for the install container"
        ) from error
    return target
