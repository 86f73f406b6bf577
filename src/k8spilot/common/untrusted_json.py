"""JSON that somebody else wrote, and who may mean no good.

The standard library's reader takes more than JSON (NaN), and fails in more ways than it says: where brackets lie too
deep, with a text that is no Unicode and cannot be written anywhere, and with one that is many times larger in memory.
"""

import json
import re
from collections.abc import Collection
from typing import Any, Final, NoReturn

VALUES_BYTES: Final = 256 * 1024
"""How much of a document may be outside of its texts: every few bytes there become an object of fifty."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a character outside of the basic plane; two of them make one."""


def read_json(document: bytes | str, *, unique: bool = False) -> Any:
    """The value of a JSON document; `unique`: one in which no name is given twice, which readers take differently.

    Raises:
        ValueError: it is none, or one that is not to be had in memory.
    """
    raw = document.encode() if isinstance(document, str) else document
    if len(raw) > VALUES_BYTES and len(_TEXT.sub(b"", raw)) > VALUES_BYTES:
        raise ValueError("there are too many values in it")
    try:
        # Bytes are read more kindly: in other encodings, and with halves of characters.
        value = json.loads(raw.decode(), parse_constant=_none_such, object_pairs_hook=_unique if unique else None)
        if _HALF.search(raw) is not None:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def fields(found: Any, names: Collection[str]) -> dict[str, Any]:
    """A JSON object that has such fields: one that readers which ignore case (Go's encoding/json) take alike.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(found, dict):
        raise ValueError("it is of another shape")  # noqa: TRY004 -- as all that is wrong with a document
    folded = {name.casefold(): name for name in names}
    for name in found:
        if name not in names and (meant := folded.get(name.casefold())) is not None:
            raise ValueError(f"some readers take its field {name!r} for {meant!r}, and some do not")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice in it")
    return found


def _none_such(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
