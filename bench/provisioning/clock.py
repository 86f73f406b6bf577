"""The clock of a simulation: calls in the order of time."""

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Calls that are due, and the time of the latest one."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Make a call at a time; of calls at the same time, the earlier ordered one is made first."""
        heapq.heappush(self._due, (max(when, self.now), next(self._order), call))

    def step(self) -> bool:
        """Make the next call; whether there was one."""
        if not self._due:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True
