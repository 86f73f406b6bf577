"""`k8spilot settings`: every setting, its value in force, its default, where it comes from, and its meaning."""

import json
import textwrap
from collections.abc import Collection, Mapping
from typing import Final

from k8spilot.common.errors import SettingsError
from k8spilot.settings.reference import Setting, in_force
from k8spilot.settings.unknown_variables import ineffective, nearest

_WIDTH: Final = 100


def chosen(found: list[Setting], names: Collection[str]) -> list[Setting]:
    """Return the settings of these names, or all without names.

    Raises:
        SettingsError: there is no setting of such a name.
    """
    wanted = {name.lower() for name in names}
    known = {one.name.lower() for one in found}
    for name in names:
        if name.lower() not in known:
            meant = nearest(name)
            hint = f"did you mean {meant}" if meant.lower() in known else "`k8spilot settings` lists all"
            raise SettingsError(f"{name} is not a setting; {hint}")
    return [one for one in found if not wanted or one.name.lower() in wanted]


def shown(environment: Mapping[str, str], names: Collection[str], place: str, *, as_json: bool) -> str:
    """Return the settings of an environment, as text for people or as JSON.

    Args:
        environment: variables and their values.
        names: settings to show; all if empty.
        place: where the variables are, in a word.
        as_json: return a JSON object.
    """
    found = chosen(in_force(environment, place), names)
    ignored = [] if names else [one.words for one in ineffective(environment)]
    if as_json:
        return json.dumps({"settings": [one._asdict() for one in found], "ignored": ignored}, indent=2)
    return "\n".join([*map(_text, found), *(f"ignored: {words}" for words in ignored)])


def _text(one: Setting) -> str:
    lines = [f"{one.name}={one.value}" if one.value else f"{one.name} is not set"]
    lines.append(f"    from: {one.source}; default: {one.default or 'none'}")
    if one.fault:
        lines.append(f"    INVALID: {one.fault}")
    lines += textwrap.wrap(
        one.meaning, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4, break_on_hyphens=False
    )
    return "\n".join(lines)
