"""GPU request of a job, from the job's ad, which the starter writes into the sandbox before it requests a container."""

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
    """Return the number of GPUs that a job requested, where the engine sees the sandboxes: if HTCondor is root.

    A job can write a file of its own there, with any number. That changes only the variables about GPUs that the job
    has anyway.

    Args:
        environment: environment of the job, in which the starter names the sandbox.
        execute: folder of the sandboxes.

    Returns:
        The number; None without an ad, or if the ad has an expression.
    """
    folder = Path(next((text.removeprefix(_SANDBOX) for text in environment if text.startswith(_SANDBOX)), "/"))
    if not folder.is_relative_to(execute) or ".." in folder.parts:
        return None
    try:
        file = os.open(folder / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as ad:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        match = _REQUEST.search(ad.read(_MOST_BYTES))
    if match is None:
        return 0
    value = match[1].strip()
    return int(value) if re.fullmatch(rb"\d{1,4}", value) else None
