"""The reference of settings: every environment variable, from the fields of `Settings` and their docstrings."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, Final

from docs.generate.sources import Settings, variables
from docs.generate.tables import NAMES, table

INTRODUCTION: Final = """\
# Settings

Settings are environment variables of the pilot container. The manifest takes them from the ConfigMap `k8spilot-pilot`.
Variables without the prefix `K8SPILOT_` have the same name and meaning as in OSPool's pilots. The names are not
case-sensitive, and an empty variable counts as not set. A pilot with an invalid value does not start: the reason is
printed in one sentence, and the exit code is 2. Numbers of hours, minutes and seconds can have a fraction unless the
table says "whole number". [Which image a job gets](../how-to/choose-images.md) has examples of the image settings.

*This page is generated from the code.*
"""

_UNPRINTABLE: Final = "\0"
"""A text that no setting takes, so that each one's reader says what it takes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the reference."""

    group: str
    variable: str
    meaning: str
    default: str
    allowed: str


def page() -> str:
    """The page."""
    found = list(settings())
    parts = [INTRODUCTION]
    for group in dict.fromkeys(one.group for one in found):
        header = ("Variable", "Meaning", "Default", "Allowed values")
        rows = [(f"`{one.variable}`", one.meaning, one.default, one.allowed) for one in found if one.group == group]
        parts += [f"## {group}\n", NAMES.format(table(header, rows))]
    return "\n".join(parts)


def settings() -> Iterator[Setting]:
    """All of them, in the order of the code."""
    documented = _documented()
    for variable, one in variables().items():
        group, meaning = documented[one.name]
        yield Setting(group, variable, meaning, _default(one), _allowed(one.metadata["read"]))


def _documented() -> dict[str, tuple[str, str]]:
    """Field -> the title of its group and its docstring, which Python itself does not keep."""
    lines = inspect.getsource(Settings)
    titles = [(number, match[1]) for number, line in enumerate(lines.splitlines(), 1) if (match := _title(line))]
    (body,) = ast.parse(lines).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for one, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            assert isinstance(following, ast.Expr)
            assert isinstance(following.value, ast.Constant), one.target.id
            group = next(title for number, title in reversed(titles) if number < one.lineno)
            found[one.target.id] = (group, inspect.cleandoc(str(following.value.value)))
    return found


def _title(line: str) -> re.Match[str] | None:
    return re.fullmatch(r"\s*# --- (.*?) ---", line)


def _default(one: Field[Any]) -> str:
    if one.metadata["variable"] == "TOKEN" or one.default in (None, "", ()):
        return ""
    return f"`{_text(one.default)}`"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value) if isinstance(value, Path) else f"{value}"


def _allowed(read: Callable[[str], Any]) -> str:
    """Return the allowed values of a setting, from the error of its parser (settings/parsers.py)."""
    try:
        read(_UNPRINTABLE)
    except ValueError as error:
        words = re.sub(r"^it must (?:be |have )", "", str(error))
        return re.sub(r"; \S+ is not a rule$", "", words)
    return "any text"
