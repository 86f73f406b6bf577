"""The reference of settings: names, meanings and defaults, from the fields of `Settings` and their docstrings.

The documentation's page Settings and `k8spilot settings` are made from it.
"""

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import Field
from typing import Any, Final, NamedTuple

from k8spilot.settings.fields import Settings, variables

_SECRET: Final = "(secret, not shown)"  # noqa: S105
_STAND_INS: Final[Mapping[str, str]] = {"NUM_CPUS": "PAYLOAD_CPUS", "MEMORY": "PAYLOAD_MEMORY_MB"}
"""Settings whose value is that of another one if they are not set."""


class Setting(NamedTuple):
    """A setting in force."""

    name: str
    """Name of the variable."""
    value: str
    """Value in force, as text; empty if there is none."""
    default: str
    source: str
    """Where the value comes from."""
    meaning: str
    fault: str
    """Fault of the value; empty if it is valid."""


def in_force(environment: Mapping[str, str], place: str = "environment") -> list[Setting]:
    """Return all settings in force.

    Args:
        environment: variables and their values, which may be invalid.
        place: where these variables are, in a word.
    """
    spelt = {name.lower(): name for name, text in environment.items() if text}
    meanings = documented()
    found = {}
    for name, one in variables().items():
        used = spelt.get(name.lower())
        value, fault = _read(one, None if used is None else environment[used])
        source = "default" if used is None else place if used == name else f"{place}, as {used}"
        found[name] = Setting(
            name=name,
            value=value,
            default=default_of(one),
            source=source,
            meaning=meanings[one.name][1],
            fault=fault,
        )
    for name, other in _STAND_INS.items():
        if found[name].source == "default" and found[other].value:
            found[name] = found[name]._replace(value=found[other].value, source=other)
    return list(found.values())


def _read(one: Field[Any], text: str | None) -> tuple[str, str]:
    """Return the value of a setting as text, and its fault."""
    if text is None:
        return default_of(one), ""
    try:
        value = one.metadata["read"](text)
    except ValueError as error:
        return _SECRET if not one.repr else text, str(error)
    # Rules and variables as they are written: they have a syntax of their own.
    is_listed = isinstance(value, tuple) and any(isinstance(part, tuple) for part in value)
    return _SECRET if not one.repr else text if is_listed else text_of(value), ""


def default_of(one: Field[Any]) -> str:
    """Return the default of a setting as text; empty if there is none."""
    return "" if one.default in (None, "", ()) else text_of(one.default)


def text_of(value: object) -> str:
    """Return a value as an operator writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def documented(of: type = Settings) -> dict[str, tuple[str, str]]:
    """Return the title of its group and the docstring of each field, which Python itself does not keep."""
    lines = inspect.getsource(of)
    titles = [(number, match[1]) for number, line in enumerate(lines.splitlines(), 1) if (match := _title(line))]
    (body,) = ast.parse(lines).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for one, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            assert isinstance(following, ast.Expr)
            assert isinstance(following.value, ast.Constant), one.target.id
            group = next((title for number, title in reversed(titles) if number < one.lineno), "")
            found[one.target.id] = (group, inspect.cleandoc(str(following.value.value)))
    return found


def _title(line: str) -> re.Match[str] | None:
    return re.fullmatch(r"\s*# --- (.*?) ---", line)
