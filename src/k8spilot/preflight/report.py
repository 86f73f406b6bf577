"""Output of `k8spilot check`, for people and for machines."""

import json
from collections.abc import Sequence

from k8spilot.preflight.finding import Finding, Verdict

_MARKS = {Verdict.GOOD: "good", Verdict.WARNING: "WARNING", Verdict.FAULT: "FAULT"}


def is_fit(findings: Sequence[Finding]) -> bool:
    """Return whether a pilot can start."""
    return all(finding.verdict is not Verdict.FAULT for finding in findings)


def as_lines(findings: Sequence[Finding]) -> str:
    """Return one line for each finding, and a summary."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = [f"{_MARKS[finding.verdict]:8}{finding.check:{width}}  {finding.words}" for finding in findings]
    faults, warnings = (
        sum(finding.verdict is verdict for finding in findings) for verdict in (Verdict.FAULT, Verdict.WARNING)
    )
    verdict = "fit" if not faults else "not fit"
    return "\n".join((*lines, f"{verdict}: {_count(faults, 'fault')}, {_count(warnings, 'warning')}"))


def as_json(findings: Sequence[Finding]) -> str:
    """Return a JSON object: `fit`, and `findings` with `check`, `verdict` (good, warning, fault) and `words`."""
    listed = [
        {"check": finding.check, "verdict": finding.verdict.value, "words": finding.words} for finding in findings
    ]
    return json.dumps({"fit": is_fit(findings), "findings": listed}, indent=2)


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
