"""Signals by the names of the docker CLI."""

import signal
from typing import Final

from k8spilot.common.errors import Refused

_DIGITS: Final = 9
"""Length limit of a number: int() raises ValueError for thousands of digits."""


def signal_number(text: str) -> int:
    """Return the number of `9`, `KILL` or `SIGKILL`.

    Raises:
        Refused: Linux has no such signal.
    """
    if text.isdecimal() and len(text) <= _DIGITS and 0 < int(text) < signal.NSIG:
        return int(text)
    name = text.upper()
    try:
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"].value
    except KeyError:
        raise Refused(f"'{text[:40]}' is not a signal of Linux; use a number or a name such as TERM") from None
