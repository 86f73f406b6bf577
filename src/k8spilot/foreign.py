"""JSON that somebody else wrote, and who may mean no good.

The standard library's reader takes more than JSON (NaN), and fails in more ways than it says: where brackets lie too
deep, with a text that is no Unicode and cannot be written anywhere, and with one that is many times larger in memory.
"""

import json
import re
from typing import Any, Final, NoReturn

VALUES_BYTES: Final = 256 * 1024
"""How much of a document may be outside of its texts: every few bytes there become an object of fifty."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a character outside of the basic plane; two of them make one."""


def read_json(document: bytes | str) -> Any:
    """The value of a JSON document.

    Raises:
        ValueError: it is none, or one that is not to be had in memory.
    """
    raw = document.encode() if isinstance(document, str) else document
    if len(raw) > VALUES_BYTES and len(_TEXT.sub(b"", raw)) > VALUES_BYTES:
        raise ValueError("there are too many values in it")
    try:
        value = json.loads(raw, parse_constant=_none_such)
        if _HALF.search(raw) is not None:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _none_such(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
