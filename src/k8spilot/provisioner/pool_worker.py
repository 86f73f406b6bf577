"""The worker process for the pool: HTCondor's library blocks its whole process while a daemon is silent.

The library reads its configuration when it is loaded. So this module must not load it.
"""

import os
import resource
from pathlib import Path
from typing import Final

from k8spilot.provisioner import suspect
from k8spilot.provisioner.model import PoolView, Question

_MOST_BYTES: Final = 640 * 2**20
"""Limit of the worker's own memory, since users of the pool write expressions. 100,000 groups of jobs take 446 MiB."""


def set_up(configuration: str, suspects: str) -> None:
    """Set up the worker, before HTCondor's library is loaded.

    Args:
        configuration: the file with the library's configuration.
        suspects: the file for the name of the user whose jobs are looked at (suspect.py).
    """
    os.environ["CONDOR_CONFIG"] = configuration
    suspect.begin(Path(suspects))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, most))


def look(question: Question) -> PoolView:
    """Return the pool's idle jobs and the slots of the pilots.

    Raises:
        RuntimeError: the collector did not answer.
    """
    from k8spilot.provisioner import pool_queries  # noqa: PLC0415

    return pool_queries.look(question)
