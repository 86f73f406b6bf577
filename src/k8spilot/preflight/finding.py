"""Findings of the preflight checks: good, a warning, or a fault."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Severity of a finding."""

    GOOD = "good"
    WARNING = "warning"
    """The pilot starts nevertheless."""
    FAULT = "fault"
    """The pilot does not start."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    """Subject of the check, in a word or two."""
    verdict: Verdict
    words: str
    """One sentence: what is wrong and how to correct it, or the good result."""


def good(check: str, words: str) -> Finding:
    """Return a good finding; `words` are the result."""
    return Finding(check, Verdict.GOOD, words)


def warning(check: str, words: str) -> Finding:
    """Return a warning: jobs can run nevertheless."""
    return Finding(check, Verdict.WARNING, words)


def fault(check: str, words: str) -> Finding:
    """Return a fault: the slot must not take jobs."""
    return Finding(check, Verdict.FAULT, words)


def judged(check: str, faults: Iterable[str], otherwise: str) -> list[Finding]:
    """Return one fault for each of `faults`, or one good finding with the text `otherwise`."""
    return [fault(check, words) for words in faults] or [good(check, otherwise)]


def faults_of(findings: Iterable[Finding]) -> list[str]:
    """Return the sentences of the faults."""
    return [finding.words for finding in findings if finding.verdict is Verdict.FAULT]
