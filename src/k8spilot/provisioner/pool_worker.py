"""The worker process for the pool: HTCondor's library blocks its whole process while a daemon is silent.

The library reads its configuration when it is loaded. So this module must not load it.
"""

import os

from k8spilot.provisioner.model import PoolView, Question


def set_up(configuration: str) -> None:
    """Have HTCondor's library read its configuration from the file `configuration`, once it is loaded."""
    os.environ["CONDOR_CONFIG"] = configuration


def look(question: Question) -> PoolView:
    """Return the pool's idle jobs and the slots of the pilots.

    Raises:
        RuntimeError: the collector did not answer.
    """
    from k8spilot.provisioner import pool_queries  # noqa: PLC0415

    return pool_queries.look(question)
