"""Whether the pool has the slot: the report of HTCondor's side of the pilot, which the engine receives as JSON."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

LOG: Final = "Pool"
"""Log name of the reports, which come with HTCondor's log lines. Other log names are files of HTCondor."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """The pool's view of the slot."""

    in_pool: bool
    """Whether a collector has the slot's ad."""
    slot: str
    """Name of the slot in the pool."""
    collector: str
    """The collector that has the ad, or the collectors that were asked."""
    since: float
    """Start of this state, in seconds since the epoch."""
    updated: float | None = None
    """Last time that a collector took the ad, in seconds since the epoch; None if it never did."""
    ever: bool = False
    """Whether the slot has been in the pool since the start of HTCondor's container."""
    problem: str = ""
    """Why the slot is not in the pool; empty while it is, and while HTCondor starts."""

    @property
    def sentence(self) -> str:
        """Return the state as a sentence without a full stop."""
        if self.in_pool:
            return f"in the pool as {self.slot} of {self.collector}"
        return f"not in the pool: {self.problem or 'HTCondor is joining it'}"

    def text(self) -> str:
        """Return the state as JSON, one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the state of a JSON text.

        Raises:
            ValueError: the text is something else.
        """
        found: Any = json.loads(text)
        if not isinstance(found, dict) or set(found) != {one.name for one in fields(cls)}:
            raise ValueError(f"{text[:80]!r} is not a state of the pool")
        return cls(**found)
