"""The factor by which this machine is slower than usual, and time limits scaled by it.

One factor serves all limits of the lab and the tests, because an emulated or a busy machine is slower in everything.
k8spilot's own limits are settings of k8spilot, and do not change.
"""

import os
from typing import Final

VARIABLE: Final = "K8SPILOT_LAB_SLOWNESS"
"""Name of the variable with the factor, such as 7 for a machine that qemu emulates."""


def _read(text: str) -> float:
    """Return the factor, 1 by default; end the program with a sentence if it is not a number from 1 to 1000."""
    try:
        factor = float(text or 1)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 1000:
        raise SystemExit(f"{VARIABLE} is {text!r}: set a number from 1 to 1000, or unset it")
    return factor


SLOWNESS: Final = _read(os.environ.get(VARIABLE, ""))


def scaled(seconds: float) -> float:
    """Return a time limit for this machine, given the one for a machine of usual speed."""
    return seconds * SLOWNESS
