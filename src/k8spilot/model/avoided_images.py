"""Images that a slot takes no jobs with for a time, because they were not available here.

Without it a job that goes back to the queue would come again at once. The time doubles with each failure of the same
name, so that a job that no site can run makes ever fewer attempts. Users choose the names: their number and length are
limited, and the oldest is dropped.
"""

from dataclasses import dataclass
from typing import Final

from k8spilot.common.lru import LruDict

_FIRST_SECONDS: Final = 600.0
_LONGEST_SECONDS: Final = 6 * 3600.0
_FORGET_SECONDS: Final = 2 * _LONGEST_SECONDS
"""Seconds after the last failure of a name after which it counts as new."""
_MOST_NAMES: Final = 32
_MOST_CHARACTERS: Final = 4096
"""Length limit of all names together: a collector holds thousands of slots in memory."""


@dataclass(slots=True)
class _Failure:
    """The failures of one name."""

    last: float
    """Time of the last one, in seconds since the epoch."""
    seconds: float
    """Seconds for which the name is avoided after it."""


class AvoidedImages:
    """Names of registries, repositories and images, with the time until which each is avoided."""

    def __init__(self) -> None:
        self._failures: LruDict[str, _Failure] = LruDict(_MOST_NAMES)

    def add(self, name: str, now: float) -> None:
        """Avoid `name` from `now` on (seconds since the epoch)."""
        failure = self._failures.get(name)
        if failure is None or now - failure.last > _FORGET_SECONDS:
            failure = _Failure(now, _FIRST_SECONDS)
        elif now >= failure.last + failure.seconds:  # a failure before that is of a job that had the slot already
            failure = _Failure(now, min(failure.seconds * 2, _LONGEST_SECONDS))
        self._failures[name] = failure
        while sum(map(len, self._failures)) > _MOST_CHARACTERS:
            self._failures.popitem(last=False)

    def at(self, now: float) -> dict[str, float]:
        """Return the names that are avoided at that time, and until when each is."""
        ends = {name: item.last + item.seconds for name, item in self._failures.items()}
        return {name: end for name, end in ends.items() if end > now}
