"""The client of HTTP over a Unix socket, and the program that prints what it gets."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from k8spilot.common import unix_http
from tests.unit.test_cli_status import engine


def run(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-IS", unix_http.__file__, *arguments], capture_output=True, check=False, timeout=20
    )


@pytest.mark.parametrize(
    ("answer", "said", "complaint"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nDetectedGPUs=0\n", b"DetectedGPUs=0\n", b""),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nabcd", b"abcd", b""),
        (b"HTTP/1.0 404 Not Found\r\n\r\nno", b"", b"answers HTTP/1.0 404 Not Found"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nabcd", b"", b"no answer"),
        (b"", b"", b"no answer"),
    ],
)
def test_an_answer_is_printed_and_nothing_else(tmp_path: Path, answer: bytes, said: bytes, complaint: bytes) -> None:
    with engine(tmp_path, answer) as path:
        done = run("get", path, "/x", "0.5")
    assert (done.returncode == 0, done.stdout) == (not complaint, said)
    assert complaint in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nfirst\nsecond\n", b"first\nsecond\n", 0),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\nno", b"", 1),
        (b"HTTP/1.0 200", b"", 1),
    ],
)
def test_a_stream_is_printed_as_it_comes_and_failures_in_silence(
    tmp_path: Path, answer: bytes, said: bytes, code: int
) -> None:
    with engine(tmp_path, answer) as path:
        done = run("stream", path, "/x")
    assert (done.returncode, done.stdout, done.stderr) == (code, said, b"")


def test_an_engine_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    answers: list[bytes] = []
    waits = threading.Thread(
        target=lambda: answers.append(unix_http.get_when_ready(str(tmp_path / "docker.sock"), "/x", 20))
    )
    waits.start()
    with engine(tmp_path, b"HTTP/1.0 200 OK\r\n\r\nready"):
        waits.join()
    assert answers == [b"ready"]


def test_it_imports_next_to_nothing() -> None:
    program = f"import sys; exec(open({unix_http.__file__!r}).read(), dict(__name__=0)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=True)
    assert not {"k8spilot", "json", "asyncio", "re"} & set(done.stdout.split())


def test_no_answer_in_time_is_an_error(tmp_path: Path) -> None:
    with engine(tmp_path, None) as path, pytest.raises(TimeoutError):
        unix_http.get(path, "/x", 0.2)
