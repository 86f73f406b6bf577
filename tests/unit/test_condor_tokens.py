"""Facts that a pilot can tell of an IDTOKEN without the pool."""

import base64
import json
from typing import Any

import pytest

from k8spilot.condor import tokens

NOW = 1_800_000_000.0
CLAIMS: dict[str, Any] = {"iss": "pool.example", "sub": "pilot@pool.example", "iat": 1_700_000_000}


def token(header: object, claims: object) -> bytes:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
    return b".".join((*parts, b"signature"))


@pytest.mark.parametrize("text", [b"not-a-token", b"..", b"a.b.c", token([], CLAIMS), token({}, 7), b"\xff.\xff.\xff"])
def test_garbage_is_no_idtoken(text: bytes) -> None:
    assert tokens.fault(text, NOW) == "not an IDTOKEN"
    assert tokens.described({"pool": text}, NOW) == "token pool: not an IDTOKEN"


def test_an_expired_token_is_told_with_its_date() -> None:
    expired = token({"kid": "POOL"}, {**CLAIMS, "exp": 1_750_000_000})
    assert tokens.fault(expired, NOW) == "expired on 2025-06-15 at 15:06 UTC"
    assert "expired on 2025-06-15" in tokens.described({"pool": expired}, NOW)


def test_a_token_is_described_by_issuer_key_subject_and_dates() -> None:
    text = b"# of the pool\n" + token({"kid": "other"}, {**CLAIMS, "scope": "condor:/READ"}) + b"\n"
    assert tokens.fault(tokens.of_file(text)[0], NOW) is None
    assert tokens.described({"pool": text}, NOW) == (
        "token pool: issuer pool.example, key other, subject pilot@pool.example, issued on 2023-11-14 at 22:13 UTC, "
        "without an expiry date, limited to condor:/READ"
    )


def test_a_token_without_a_key_id_is_signed_with_the_pools_first_key() -> None:
    assert "key POOL," in tokens.described({"pool": token({"alg": "HS256"}, CLAIMS)}, NOW)


def test_no_claim_can_make_a_line_or_a_page() -> None:
    words = tokens.described({"pool": token({}, {"iss": "x\ny" * 1000, "exp": 1e300, "iat": float("1e18")})}, NOW)
    assert "\n" not in words
    assert len(words) < 500


def test_no_tokens_are_no_words() -> None:
    assert tokens.described({}, NOW) == ""
    many = tokens.described({str(number): token({}, CLAIMS) for number in range(9)}, NOW)
    assert many.endswith("; and 5 more tokens")
