"""Jobs that end when they are told to: what stops parts of the node needs no guess of how long a job has to run."""

import os
import signal
from typing import Final

from lab.jobs import Jobs
from lab.pod_processes import oldest
from tests.e2e.pool import MATCHED_SECONDS, Pool, runs

SCRIPT: Final = "trap 'go=1' USR1; echo begun; while [ -z \"$go\" ]; do sleep 0.3; done; echo done; exit 7"
OUTPUT: Final = b"begun\ndone\n"
CODE: Final = 7


class OnSignal:
    """A job that runs and waits; it is told from outside of its pod, so that no daemon of the node need be there."""

    def __init__(self, pool: Pool, jobs: Jobs) -> None:
        self.pool = pool
        self.jobs = jobs
        self._process = 0

    @classmethod
    def submit(cls, pool: Pool) -> "OnSignal":
        """Submit it; it runs after `wait_until_it_runs`."""
        return cls(pool, pool.shell(SCRIPT))

    def wait_until_it_runs(self) -> None:
        """Return when it waits for its signal."""
        self.jobs.wait("ExecuteEvent", timeout=MATCHED_SECONDS)
        runs(self.pool, "sleep 0.3")
        self._process = oldest(self.pool.lab, self.pool.pod, r"^/bin/sh \./job\.sh")

    def tell(self) -> None:
        """Have it end."""
        os.kill(self._process, signal.SIGUSR1)
