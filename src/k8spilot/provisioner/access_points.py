"""Memory of the access points. A collector or a schedd that was started again has none, and yet there are jobs.

The pool worker uses it in a look, and the provisioner keeps it between looks: a worker may be killed.
"""

from dataclasses import dataclass, field
from typing import Final

SILENT_SECONDS: Final = 60.0
"""Time for which an access point that does not answer is left out: each one takes QUERY_TIMEOUT."""
LEFT_OUT_SECONDS: Final = 600.0
"""Time for which one is left out whose answer took too much memory, or so long that the worker was killed."""
LEFT_OUT: Final = "it is left out for ten minutes"
KNOWN_SECONDS: Final = 1800.0
"""Time after which an access point is taken for one without jobs: one that the collector no longer has, or that does
not answer."""


@dataclass(slots=True)
class AccessPoints:
    """Facts from earlier looks, by name. All times are those of the machine's monotonic clock."""

    silent: dict[str, float] = field(default_factory=dict)
    """Time from which one that did not answer is asked again."""
    seen: dict[str, float] = field(default_factory=dict)
    """When the collector had each one last."""
    answers: dict[str, float] = field(default_factory=dict)
    """When each one answered last, or was missed for the first time."""

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
