"""Memory of the jobs whose payload container's first process was killed, without a known cause.

A job can kill that process, which has its uid. Such a job has no result, so that HTCondor runs it again, without end.
The job is held when that happens to it again on the same pilot, or when it happens to job after job of its user. The
kernel does not tell who sent a signal: something on the node may have killed an innocent job's container, twice. So if
containers of other users' jobs were killed lately, too, a job is held only after twice as many such deaths.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from k8spilot.common.lru import LruDict

_TIMES: Final = 2
_TIMES_AMONG_OTHERS: Final = 4
IN_A_ROW: Final = 5
"""Deaths in a row of one user's jobs, without a result in between, after which each further one holds its job."""
_IN_A_ROW_AMONG_OTHERS: Final = 10
_MOST_JOBS: Final = 256


class DeathCause(Enum):
    """Cause of a death, as far as can be known."""

    NONE = auto()
    """Unknown: the job runs again."""
    JOB = auto()
    """The job, whose container has died before."""
    USER = auto()
    """The job, since the last jobs of its user died so."""


@dataclass(slots=True)
class _Deaths:
    """The deaths of one job's containers."""

    user: str
    count: int = 0


class KilledContainers:
    """Counts the deaths by job."""

    def __init__(self) -> None:
        self._jobs: LruDict[str, _Deaths] = LruDict(_MOST_JOBS)
        self._rows: LruDict[str, int] = LruDict(_MOST_JOBS)
        """User -> deaths since the last job with a result."""

    def passed(self, user: str) -> None:
        """Count a job of the user that has a result."""
        self._rows.pop(user, None)

    def add(self, job: str, user: str) -> DeathCause:
        """Count a death under `job`. Return its cause.

        Args:
            job: HTCondor's cluster.proc.
            user: its owner; empty if unknown. Jobs of different access points may have the same number.
        """
        key = f"{job} {user}"
        deaths = self._jobs[key] = self._jobs.get(key) or _Deaths(user)
        deaths.count += 1
        before = self._rows.get(user, 0)
        self._rows[user] = before + 1
        is_alone = bool(user) and all(other.user == user for other in self._jobs.values())
        if deaths.count >= (_TIMES if is_alone else _TIMES_AMONG_OTHERS):
            return DeathCause.JOB
        most = IN_A_ROW if is_alone else _IN_A_ROW_AMONG_OTHERS
        return DeathCause.USER if user and before >= most else DeathCause.NONE
