"""IDTOKENS as the pilot can read them: claims without the signature, which only the pool can verify."""

import base64
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from k8spilot.common.logs import one_line
from k8spilot.common.untrusted_json import read_json

_MOST_CHARACTERS: Final = 80
"""Longest claim that a sentence shows."""
_MOST_TOKENS: Final = 4
"""Tokens that a sentence describes."""


def of_file(text: bytes) -> list[bytes]:
    """Return the tokens of a file: one per line, without comment lines."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(b"#")]


def fault(token: bytes, now: float) -> str | None:
    """Return why HTCondor could not use a token at `now` (seconds since the epoch), or None."""
    claims = _part(token, 1)
    if claims is None or _part(token, 0) is None:
        return "not an IDTOKEN"
    expires = claims.get("exp")
    if isinstance(expires, int | float) and expires <= now:
        return f"expired on {_moment(expires)}"
    return None


def described(files: Mapping[str, bytes], now: float) -> str:
    """Return a phrase about the tokens of files (name, content): whose they are, and until when they are valid."""
    phrases = [
        f"token {one_line(name)[:_MOST_CHARACTERS]}: {_described(token, now)}"
        for name, text in files.items()
        for token in of_file(text)
    ]
    more = [f"and {len(phrases) - _MOST_TOKENS} more tokens"] if len(phrases) > _MOST_TOKENS else []
    return "; ".join([*phrases[:_MOST_TOKENS], *more])


def _described(token: bytes, now: float) -> str:
    header, claims = _part(token, 0), _part(token, 1)
    if header is None or claims is None:
        return "not an IDTOKEN"
    return ", ".join(_claims(header, claims, now))


def _claims(header: Mapping[str, Any], claims: Mapping[str, Any], now: float) -> Iterator[str]:
    yield f"issuer {_text(claims.get('iss'))}"
    # HTCondor signs with the key POOL if the header names none.
    yield f"key {_text(header.get('kid', 'POOL'))}"
    yield f"subject {_text(claims.get('sub'))}"
    if isinstance(issued := claims.get("iat"), int | float):
        yield f"issued on {_moment(issued)}"
    if isinstance(expires := claims.get("exp"), int | float):
        yield f"{'expired' if expires <= now else 'expires'} on {_moment(expires)}"
    else:
        yield "without an expiry date"
    if scope := claims.get("scope"):
        yield f"limited to {_text(scope)}"


def _part(token: bytes, number: int) -> dict[str, Any] | None:
    """Return the JSON object of a part of a JWT, or None."""
    try:
        part = token.split(b".")[number]
        found = read_json(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str:
    return one_line(str(value))[:_MOST_CHARACTERS] if value else "none"


def _moment(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d at %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s after 1970"
