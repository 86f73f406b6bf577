"""What a check has found: good, to be known, or a fault."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How much it matters."""

    GOOD = "good"
    WARNING = "warning"
    """The pilot starts all the same."""
    FAULT = "fault"
    """It does not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    """What was looked at, in a word or two."""
    verdict: Verdict
    words: str
    """One sentence: what is wrong and how to mend it, or what was seen."""


def good(check: str, words: str) -> Finding:
    """It is as it should be; `words` say what was seen."""
    return Finding(check, Verdict.GOOD, words)


def warning(check: str, words: str) -> Finding:
    """It is not, but jobs can run."""
    return Finding(check, Verdict.WARNING, words)


def fault(check: str, words: str) -> Finding:
    """No job should be taken here."""
    return Finding(check, Verdict.FAULT, words)


def judged(check: str, faults: Iterable[str], otherwise: str) -> list[Finding]:
    """One finding for each of `faults`; if there is none, what was seen `otherwise`."""
    return [fault(check, words) for words in faults] or [good(check, otherwise)]


def faults_of(findings: Iterable[Finding]) -> list[str]:
    """The sentences of the faults."""
    return [one.words for one in findings if one.verdict is Verdict.FAULT]
