"""JSON that somebody else wrote."""

import json
import tracemalloc

import pytest

from k8spilot.common.untrusted_json import NESTING, VALUES_BYTES, read_json


@pytest.mark.parametrize("document", ["{}", '{"a": [1, 2.5, null, true, "\\ud83d\\ude00"]}', '"é"', " 1 "])
def test_json_is_read(document: str) -> None:
    assert read_json(document) == read_json(document.encode()) == json.loads(document)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "Expecting value"),
        (b"NaN", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b'"\xff"', "utf-8"),
        (b'"\\ud800"', "surrogates"),
        (b'{"\\udc80": 1}', "surrogates"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b"[" * (NESTING + 1) + b"]" * (NESTING + 1), "nested too deeply"),
        (b"9" * 5000, "limit"),
        (b"[" + b"0," * VALUES_BYTES + b"0]", "too many values"),
        (b'"' + b'\\"' * VALUES_BYTES, "Unterminated"),  # takes minutes if each quotation mark is tried as a beginning
        (b'"' + b'\\"' * VALUES_BYTES + b"\\", "Unterminated"),
    ],
)
def test_what_is_no_json_is_a_value_error(document: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_json(document)


def test_only_what_is_nested_counts_as_nested() -> None:
    deep = "[" * (NESTING - 1) + "]" * (NESTING - 1)
    beside = ",".join(["{}"] * (2 * NESTING))
    text = json.dumps('"' + "[{" * NESTING)
    document = f"[{deep},{beside},{text}]"
    assert read_json(document) == json.loads(document)


def test_a_long_text_is_no_reason_to_refuse_a_document() -> None:
    text = 'a,"\\[{' * VALUES_BYTES
    assert read_json(json.dumps([text])) == [text]
    assert read_json(json.dumps(text)) == text


def test_a_document_takes_no_more_memory_than_texts_do() -> None:
    document = b"[" + b"[]," * (VALUES_BYTES // 3 - 2) + b"[]]"
    tracemalloc.start()
    try:
        read_json(document)
        assert tracemalloc.get_traced_memory()[1] < 30 * len(document)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("document", [b'{"a": "\xed\xa0\x80"}', b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b'"\xff"'])
def test_bytes_that_are_no_utf_8_are_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"codec|BOM|column"):
        read_json(document)
