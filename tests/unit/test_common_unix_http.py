"""The client of HTTP over a Unix socket."""

import subprocess
import sys
from pathlib import Path

import pytest

from k8spilot.common import unix_http
from tests.unit.test_cli_status import engine


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.0 200 OK\r\n\r\nabcd", b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nabcd"]
)
def test_an_answer_is_returned(tmp_path: Path, answer: bytes) -> None:
    with engine(tmp_path, answer) as path:
        assert unix_http.get(path, "/x", 5) == b"abcd"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\nno", unix_http.ErrorStatus, "404 Not Found"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nabcd", ValueError, "in the middle"),
        (b"something else\r\n\r\n", ValueError, "it answers 'something else'"),
        (b"", ValueError, "closed the connection"),
    ],
)
def test_no_whole_answer_is_an_error(tmp_path: Path, answer: bytes, kind: type[Exception], words: str) -> None:
    with engine(tmp_path, answer) as path, pytest.raises(kind, match=words):
        unix_http.get(path, "/x", 5)


def test_it_imports_next_to_nothing() -> None:
    program = f"import sys; exec(open({unix_http.__file__!r}).read(), dict(__name__=0)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=True)
    assert not {"k8spilot", "json", "asyncio", "re"} & set(done.stdout.split())


def test_no_answer_in_time_is_an_error(tmp_path: Path) -> None:
    with engine(tmp_path, None) as path, pytest.raises(TimeoutError):
        unix_http.get(path, "/x", 0.2)
