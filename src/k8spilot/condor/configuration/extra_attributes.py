"""The operator's own attributes of the slot, from a file in the format of OSPool's /etc/osg/extra-attributes.cfg."""

import re
from collections.abc import Container
from pathlib import Path
from typing import Final

from k8spilot.common.errors import SettingsError
from k8spilot.condor.configuration.classads import check

_LINE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(\S.*)")
_OF_HTCONDOR: Final = frozenset({"start", "rank", "requirements", "cpus", "disk", "gpus", "state", "activity", "name"})
"""Names in lower case that are not in the template and that HTCondor gives a meaning."""


def read(file: Path, taken: Container[str]) -> dict[str, str]:
    """Return the attributes and their ClassAd expressions; none if there is no such file.

    Args:
        file: one `Name = expression` a line. Empty lines and those that begin with # are ignored.
        taken: names in lower case that the pilot's configuration uses.

    Raises:
        SettingsError: a line is invalid.
    """
    try:
        lines = file.read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read ({error}); mount the ConfigMap extra-attributes there") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        where = f"line {number} of {file} is {text[:80]!r}, but it must be"
        match = _LINE.fullmatch(text)
        if match is None or not text.isprintable() or text.endswith("\\"):
            raise SettingsError(f'{where} an attribute and its value, such as Rack = "A7"')
        name, expression = match.groups()
        if name.lower() in taken or name.lower() in _OF_HTCONDOR:
            raise SettingsError(f"{where} an attribute that neither HTCondor nor k8spilot uses; choose another name")
        check(expression, f"{where} a ClassAd expression; put texts into double quotes", parse=True)
        found[name] = expression
    return found
