"""The reference of settings: every environment variable, from the fields of `Settings` and their docstrings."""

import re
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass
from typing import Any, Final

from docs.generate.sources import default_of, documented, variables
from docs.generate.tables import NAMES, table

INTRODUCTION: Final = """\
# Settings

Settings are environment variables of the pilot container. The manifest takes them from the ConfigMap `k8spilot-pilot`.
Variables of the first group without the prefix `K8SPILOT_` have the names and the meaning of OSPool's pilots. The names
are not case-sensitive, and an empty variable counts as not set. A pilot with an invalid value does not start: the
reason is printed in one sentence, and the exit code is 2. Numbers of hours, minutes and seconds can have a fraction
unless the table says "whole number". [Which image a job gets](../how-to/choose-images.md) has examples of the image
settings.

*This page is generated from the code.*
"""

_UNPRINTABLE: Final = "\0"
"""A text that no setting takes, so that the error of each parser names the allowed values."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the reference."""

    group: str
    variable: str
    meaning: str
    default: str
    allowed: str


def page() -> str:
    """Return the page."""
    found = list(settings())
    parts = [INTRODUCTION]
    for group in dict.fromkeys(one.group for one in found):
        header = ("Variable", "Meaning", "Default", "Allowed values")
        rows = [(f"`{one.variable}`", one.meaning, one.default, one.allowed) for one in found if one.group == group]
        parts += [f"## {group}\n", NAMES.format(table(header, rows))]
    return "\n".join(parts)


def settings() -> Iterator[Setting]:
    """Yield all settings, in the order of the code."""
    meanings = documented()
    for variable, one in variables().items():
        group, meaning = meanings[one.name]
        yield Setting(group, variable, meaning, _default(one), allowed(one))


def _default(one: Field[Any]) -> str:
    text = default_of(one)
    return f"`{text}`" if text and one.repr else ""


def allowed(one: Field[Any]) -> str:
    """Return the allowed values of a setting, from the error of its parser (settings/parsers.py)."""
    read: Callable[[str], Any] = one.metadata["read"]
    try:
        read(_UNPRINTABLE)
    except ValueError as error:
        words = re.sub(r"^it must (?:be |have )", "", str(error))
        return re.sub(r"; \S+ is not a rule$", "", words)
    return "any text"
