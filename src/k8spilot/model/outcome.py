"""The outcome of a run."""

import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run."""

    code: int
    """Docker's exit code: the program's own, or 128 + N after signal N (as docker's --init reports it)."""
    finished: datetime
    out_of_memory: bool = False
    signalled: bool = False
    """Whether a signal ended the program. Programs also exit with codes above 128 by themselves."""
    excess: str = ""
    """Why HTCondor is to hold the job, for a job that has used more than it may; else empty."""

    @classmethod
    def of(cls, status: int, *, out_of_memory: bool = False) -> "Outcome":
        """Return the outcome for a wait status (waitpid(2))."""
        code = os.waitstatus_to_exitcode(status)
        return cls(code if code >= 0 else 128 - code, datetime.now(UTC), out_of_memory, signalled=code < 0)

    @classmethod
    def killed_for_memory(cls) -> "Outcome":
        """Return the outcome of a container that the kernel killed for lack of memory, including payload-init."""
        return cls(128 + signal.SIGKILL, datetime.now(UTC), out_of_memory=True, signalled=True)
