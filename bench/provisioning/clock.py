"""The clock of a simulation: calls in the order of time."""

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Queue of due calls, and the time of the latest call."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Schedule a call; of calls at the same time, the one scheduled first is made first."""
        heapq.heappush(self._due, (max(when, self.now), next(self._order), call))

    def step(self) -> bool:
        """Make the next call; return whether there was one."""
        if not self._due:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True
