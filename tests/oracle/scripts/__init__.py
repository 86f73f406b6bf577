"""Scripts for both engines: each one drives docker and returns what HTCondor, or a person, gets to know."""

from collections.abc import Callable
from typing import Any, Final

from tests.oracle.engines import Docker

Script = Callable[[Docker], Any]

SCRIPTS: Final[dict[str, Script]] = {}
"""Every script by its name."""


def script(function: Script) -> Script:
    """Enter a script under its function's name."""
    return named(function.__name__.replace("_", "-"))(function)


def named(name: str) -> Callable[[Script], Script]:
    """Enter a script under `name`."""

    def enter(function: Script) -> Script:
        assert name not in SCRIPTS, name
        SCRIPTS[name] = function
        return function

    return enter
