"""The job's own ad, which the starter puts into the sandbox before it asks docker for a container."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_NAME: Final = ".job.ad"
_SANDBOX: Final = "_CONDOR_SCRATCH_DIR="
_MOST_BYTES: Final = 4 * 1024 * 1024
_REQUEST: Final = re.compile(rb"^RequestGPUs[ \t]*=([^\n]*)$", re.IGNORECASE | re.MULTILINE)


def requested_gpus(environment: Iterable[str], execute: str) -> int | None:
    """How many GPUs a job has asked for, where the engine has the sandboxes: where HTCondor is root.

    A job can have a file of its own there, with any figure: that changes what it is told of GPUs that it has anyway.

    Args:
        environment: of the job, where the starter says which its sandbox is.
        execute: where sandboxes are.

    Returns:
        The number; None where there is no ad, or an expression in it.
    """
    folder = Path(next((one.removeprefix(_SANDBOX) for one in environment if one.startswith(_SANDBOX)), "/"))
    if not folder.is_relative_to(execute) or ".." in folder.parts:
        return None
    try:
        file = os.open(folder / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as ad:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        found = _REQUEST.search(ad.read(_MOST_BYTES))
    if found is None:
        return 0
    value = found[1].strip()
    return int(value) if re.fullmatch(rb"\d{1,4}", value) else None
