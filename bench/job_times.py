"""Parse the times that bench/payload/work.c prints."""

import re

from lab.errors import LabError


def times(words: str) -> dict[str, float]:
    """Word -> seconds since the epoch; `used` is seconds of processor, `turn<number>` how long that turn took."""
    return {word: float(seconds) for word, seconds in re.findall(r"^(\w+) (\d+\.\d+)$", words, re.MULTILINE)}


def whole(words: str, who: str) -> dict[str, float]:
    """The same of a job that has come to its end. Raises LabError: `who` has not said `start` and `end`."""
    found = times(words)
    if missing := {"start", "end"} - set(found):
        raise LabError(f"{who} has not said {' and '.join(sorted(missing))}, but {words.strip()[:200]!r}")
    return found
