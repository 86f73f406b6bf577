"""How much longer than usual everything takes on this machine, and what that means for time limits.

One factor for all limits of the lab and the tests, because an emulated or a busy machine is slower in everything.
k8spilot's own limits are settings of its own, and stay.
"""

import os
from typing import Final

VARIABLE: Final = "K8SPILOT_LAB_SLOWNESS"
"""Name of the variable with the factor, such as 7 for a machine that qemu emulates."""


def _read(text: str) -> float:
    """Return the factor, 1 where none is given; end the program with a sentence if it is no number from 1 to 1000."""
    try:
        factor = float(text or 1)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 1000:
        raise SystemExit(f"{VARIABLE} is {text!r}: set a number from 1 to 1000, or unset it")
    return factor


SLOWNESS: Final = _read(os.environ.get(VARIABLE, ""))


def scaled(seconds: float) -> float:
    """Return a time limit for this machine, from one for a machine of usual speed."""
    return seconds * SLOWNESS
