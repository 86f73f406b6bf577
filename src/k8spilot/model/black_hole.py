"""Detection of a slot on which every job fails: a black hole, which would drain a queue within minutes.

A slot is closed after the jobs of several users have failed within seconds, one after another, with no job in between
that ended well or ran for longer. One user alone cannot close a slot, whatever the jobs of that user do: the failures
of a user count once. So the jobs of a user count for nothing where nobody else has jobs.
"""

from collections import OrderedDict
from typing import Final

QUICK_SECONDS: Final = 30.0
"""Seconds within which a failure counts. A job that runs for longer shows that the slot runs jobs."""
USERS: Final = 3
"""Users whose jobs have to fail."""
_TOGETHER_SECONDS: Final = 3600.0
"""Seconds within which they have to fail."""
_FIRST_SECONDS: Final = 600.0
_LONGEST_SECONDS: Final = 4 * 3600.0


class BlackHole:
    """The failures since the last job that did not fail."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, float] = OrderedDict()
        """User -> time of the last failure, the latest last."""
        self._next = _FIRST_SECONDS

    def passed(self) -> None:
        """Count a job that ended well, or ran for long."""
        self._failures.clear()
        self._next = _FIRST_SECONDS

    def failed(self, user: str, now: float) -> float:
        """Count a job that failed within seconds. Return for how many seconds to close the slot; 0 to keep it open.

        Each closure without a job that passed in between takes twice as long as the one before.

        Args:
            user: owner of the job; a job without a known owner does not count.
            now: time in seconds.
        """
        if not user:
            return 0.0
        self._failures[user] = now
        self._failures.move_to_end(user)
        while now - next(iter(self._failures.values())) > _TOGETHER_SECONDS:
            self._failures.popitem(last=False)
        if len(self._failures) < USERS:
            return 0.0
        self._failures.clear()
        seconds, self._next = self._next, min(2 * self._next, _LONGEST_SECONDS)
        return seconds
