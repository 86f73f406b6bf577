"""Parsing of JSON from untrusted sources.

The standard library's parser accepts more than JSON (NaN), and fails in undocumented ways: with text that is invalid
Unicode and cannot be written anywhere, and with a document that is many times larger in memory. It reads as many levels
of nesting as the stack has room for, and what handles the value next may need more room for each.
"""

import json
import re
from collections.abc import Collection
from itertools import accumulate
from typing import Any, Final, NoReturn

VALUES_BYTES: Final = 256 * 1024
"""Limit of the bytes outside of strings: every few of them become an object of fifty bytes."""
NESTING: Final = 100
"""Limit of the levels of objects and lists."""
_LEVELS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?)', re.DOTALL)
"""String, or one that does not end: otherwise each quotation mark in it would be tried as the beginning of one."""
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Escape of a surrogate; two of them encode one character."""


def read_json(document: bytes | str, *, unique: bool = False) -> Any:
    """Return the value of a JSON document.

    Args:
        document: the text.
        unique: reject a repeated name in an object, which parsers interpret differently.

    Raises:
        ValueError: the document is invalid or too large in memory.
    """
    raw = document.encode() if isinstance(document, str) else document
    if len(raw) > VALUES_BYTES or raw.count(b"[") + raw.count(b"{") > NESTING:
        structure = _TEXT.sub(b"", raw)
        if len(structure) > VALUES_BYTES:
            raise ValueError("it has too many values")
        if max(accumulate(_LEVELS.get(byte, 0) for byte in structure), default=0) > NESTING:
            raise ValueError("it is nested too deeply")
    # json.loads accepts more in bytes: other encodings, and single surrogates.
    value = json.loads(raw.decode(), parse_constant=_reject_constant, object_pairs_hook=_unique if unique else None)
    if _HALF.search(raw) is not None:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def fields(value: Any, names: Collection[str]) -> dict[str, Any]:
    """Return a JSON value as an object whose fields case-insensitive parsers (Go's encoding/json) interpret equally.

    Raises:
        ValueError: it is not such an object.
    """
    if not isinstance(value, dict):
        raise ValueError("it has another form")  # noqa: TRY004 -- ValueError for every invalid document
    folded = {name.casefold(): name for name in names}
    for name in value:
        if name not in names and (meant := folded.get(name.casefold())) is not None:
            raise ValueError(f"some parsers interpret its field {name!r} as {meant!r}, and some do not")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("it has a name twice")
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
