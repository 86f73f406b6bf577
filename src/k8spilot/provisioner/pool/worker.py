"""The worker process that queries the pool: HTCondor's library blocks its whole process while a daemon is silent.

The library reads its configuration when it is loaded. So this module imports query_runner.py, which loads the library,
only after `set_up`.

The worker writes into a file whose jobs it is evaluating, or which access point is answering. If it dies or hangs, the
provisioner reads there whose expression, or whose answer, is the cause.
"""

import mmap
import os
import resource
from pathlib import Path
from typing import Final

from k8spilot.provisioner.pool.query import PoolQuery, PoolView

_MOST_BYTES: Final = 640 * 2**20
"""Limit of the worker's own memory, since users of the pool write expressions. 100,000 groups of jobs take 446 MiB."""
_SUSPECT_BYTES: Final = 1024
"""Size of the file with the suspect."""
_suspect: mmap.mmap | None = None


def set_up(configuration: str, suspect: str) -> None:
    """Set up the worker, before HTCondor's library is loaded.

    Args:
        configuration: the file with the library's configuration.
        suspect: the file that records the user whose jobs are evaluated, or the access point that answers.
    """
    global _suspect  # noqa: PLW0603 -- the process is one worker
    os.environ["CONDOR_CONFIG"] = configuration
    file = Path(suspect)
    file.write_bytes(bytes(_SUSPECT_BYTES))
    with file.open("r+b") as opened:
        _suspect = mmap.mmap(opened.fileno(), _SUSPECT_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, most))


def run(query: PoolQuery) -> PoolView:
    """Return the pool's idle jobs and the slots of the pilots.

    Raises:
        RuntimeError: the collector did not answer.
    """
    from k8spilot.provisioner.pool import query_runner  # noqa: PLC0415

    return query_runner.run(query, record_suspect)


def record_suspect(name: str) -> None:
    """Record the user whose jobs are evaluated now, or the access point that answers; an empty name afterwards."""
    if _suspect is not None:
        _suspect[:] = name.encode()[: _SUSPECT_BYTES - 1].ljust(_SUSPECT_BYTES, b"\0")


def suspect_in(file: Path) -> str:
    """Return the name in `file`; empty if the worker was evaluating nobody's jobs."""
    try:
        return file.read_bytes().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""
