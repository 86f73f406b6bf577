"""Parse the times that bench/payload/work.c prints."""

import re

from lab.errors import LabError


def times(words: str) -> dict[str, float]:
    """Return seconds since the epoch by word; `used` is processor time, and `turn<number>` the duration of a turn."""
    return {word: float(seconds) for word, seconds in re.findall(r"^(\w+) (\d+\.\d+)$", words, re.MULTILINE)}


def whole(words: str, who: str) -> dict[str, float]:
    """Return the times of a job that has ended. Raises LabError: `who` has not printed `start` and `end`."""
    found = times(words)
    if missing := {"start", "end"} - set(found):
        raise LabError(f"{who} has not said {' and '.join(sorted(missing))}, but {words.strip()[:200]!r}")
    return found
