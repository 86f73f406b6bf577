"""Memory of the access points. A collector or a schedd that was started again has none, and yet there are jobs.

The pool worker uses it in a query, and the provisioner keeps it between queries: a worker may be killed.
"""

import time
from dataclasses import dataclass, field
from typing import Final

_SILENT_SECONDS: Final = 60.0
"""Time for which an access point that does not answer is left out: each one takes QUERY_TIMEOUT."""
_LARGE_SECONDS: Final = 600.0
"""Time for which one is left out whose answer took too much memory, or so long that the worker was killed."""
_PREFIX: Final = "access point "
"""Prefix of access points among the suspects of the pool worker; the name of a user has no space."""
KNOWN_SECONDS: Final = 1800.0
"""Time after which an access point is taken for one without jobs: one that the collector no longer has, or that does
not answer."""


@dataclass(slots=True)
class AccessPoints:
    """Facts from earlier queries, by name. All times are those of the machine's monotonic clock."""

    left_out: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Access points that are not asked: until when, and why."""
    seen: dict[str, float] = field(default_factory=dict)
    """When the collector had each one last."""
    answers: dict[str, float] = field(default_factory=dict)
    """When each one answered last, or was missed for the first time."""

    def leave_out_silent(self, name: str) -> None:
        """Leave out an access point that did not answer."""
        why = f"the access point {name} did not answer, and is asked again in a minute"
        self.left_out[name] = (time.monotonic() + _SILENT_SECONDS, why)

    def leave_out_large(self, name: str, cost: str) -> str:
        """Leave out an access point whose answer took too much of `cost`; return a sentence about that."""
        why = f"the answer of the access point {name} took too much {cost}; it is left out for ten minutes"
        self.left_out[name] = (time.monotonic() + _LARGE_SECONDS, why)
        return why

    def why_left_out(self, name: str, now: float) -> str:
        """Return why an access point is not asked now; empty if it is asked."""
        until, why = self.left_out.get(name, (0.0, ""))
        return why if now < until else ""

    def answered(self, name: str, now: float) -> None:
        """Note that an access point has answered."""
        self.answers[name] = now

    def is_missed(self, name: str, now: float) -> bool:
        """Return whether an access point that does not answer may have jobs: it answered lately, or is new."""
        return now - self.answers.setdefault(name, now) < KNOWN_SECONDS

    def absent(self, names: set[str], now: float) -> list[str]:
        """Return sentences about those that the collector had before and does not have any more."""
        self.seen |= dict.fromkeys(names, now)
        self.seen = {name: seen for name, seen in self.seen.items() if now - seen < KNOWN_SECONDS}
        gone = sorted(self.seen.keys() - names)
        found = [f"the collector no longer has the access point {name}" for name in gone]
        return found if names or gone else ["the collector has no access point"]


def as_suspect(name: str) -> str:
    """Return the name under which the pool worker records an access point (worker.py)."""
    return _PREFIX + name


def access_point_in(suspect: str) -> str:
    """Return the name of the access point that the pool worker has recorded; empty if it was a user."""
    return suspect.removeprefix(_PREFIX) if suspect.startswith(_PREFIX) else ""
