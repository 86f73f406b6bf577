"""`k8spilot check`: what was found, for people and for machines."""

import json
from collections.abc import Sequence

from k8spilot.preflight.finding import Finding, Verdict

_MARKS = {Verdict.GOOD: "good", Verdict.WARNING: "WARNING", Verdict.FAULT: "FAULT"}


def is_fit(findings: Sequence[Finding]) -> bool:
    """Whether a pilot can start."""
    return all(one.verdict is not Verdict.FAULT for one in findings)


def as_lines(findings: Sequence[Finding]) -> str:
    """One line for each finding, and the sum."""
    width = max((len(one.check) for one in findings), default=0)
    lines = [f"{_MARKS[one.verdict]:8}{one.check:{width}}  {one.words}" for one in findings]
    faults, warnings = (sum(one.verdict is verdict for one in findings) for verdict in (Verdict.FAULT, Verdict.WARNING))
    verdict = "fit" if not faults else "not fit"
    return "\n".join((*lines, f"{verdict}: {_count(faults, 'fault')}, {_count(warnings, 'warning')}"))


def as_json(findings: Sequence[Finding]) -> str:
    """An object: `fit`, and `findings` with `check`, `verdict` (good, warning, fault) and `words`."""
    listed = [{"check": one.check, "verdict": one.verdict.value, "words": one.words} for one in findings]
    return json.dumps({"fit": is_fit(findings), "findings": listed}, indent=2)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
