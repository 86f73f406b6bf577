"""Memory of the jobs whose payload container's first process was killed, without a known cause.

A job can kill that process, which has its uid. Such a job has no result, so that HTCondor runs it again, without end.
The job is held when that happens to it again on the same pilot. The kernel does not tell who sent a SIGKILL: something
on the node may have killed an innocent job's container, twice. So a job is held only while this happens to the jobs of
one user alone, and later if it happens to others, too.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_TIMES: Final = 2
_TIMES_AMONG_OTHERS: Final = 4
_MOST_JOBS: Final = 256


@dataclass(slots=True)
class _Deaths:
    """The deaths of one job's containers."""

    user: str
    count: int = 0


class KilledContainers:
    """Counts the deaths by job."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Deaths] = OrderedDict()

    def add(self, job: str, user: str) -> bool:
        """Count a death under `job`. Return whether the job is the cause, as far as can be known.

        Args:
            job: HTCondor's cluster.proc.
            user: its owner; empty if unknown. Jobs of different access points may have the same number.
        """
        key = f"{job} {user}"
        deaths = self._jobs.setdefault(key, _Deaths(user))
        self._jobs.move_to_end(key)
        if len(self._jobs) > _MOST_JOBS:
            self._jobs.popitem(last=False)
        deaths.count += 1
        is_alone = bool(user) and all(other.user == user for other in self._jobs.values())
        return deaths.count >= (_TIMES if is_alone else _TIMES_AMONG_OTHERS)
