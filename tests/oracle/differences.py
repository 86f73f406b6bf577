"""The differences between k8spilot and dockerd that are meant; tests/oracle/test_scripts.py holds each to its word."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Difference:
    """What each of the two answers, and why it is so."""

    why: str
    dockerd: Any
    k8spilot: Any


DIFFERENCES: Final[dict[str, Difference]] = {}

NOT_YET: Final[dict[str, str]] = {}
