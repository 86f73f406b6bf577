"""The program by which HTCondor's scripts ask the engine (condor/engine-get.c)."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.simulator.programs import Programs
from tests.unit.test_cli_status import engine

WHOLE = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabcd"


def run(programs: Programs, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([programs.engine_get, *arguments], capture_output=True, check=False, timeout=20)


@pytest.mark.parametrize(
    ("answer", "said", "complaint"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nDetectedGPUs=0\n", b"DetectedGPUs=0\n", b""),
        (WHOLE, b"abcd", b""),
        (b"HTTP/1.0 200 OK\r\n\r\n" + 100_000 * b"x", 100_000 * b"x", b""),
        (b"HTTP/1.0 404 Not Found\r\n\r\nno", b"", b"answers HTTP/1.0 404 Not Found\n"),
        (WHOLE.replace(b"4", b"5"), b"", b"no answer"),
        (b"HTTP/1.0 200 OK\r\n", b"", b"no answer"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + 300_000 * b"x", b"", b"no answer"),
        (b"", b"", b"no answer"),
    ],
)
def test_an_answer_is_printed_whole_or_not_at_all(
    tmp_path: Path, programs: Programs, answer: bytes, said: bytes, complaint: bytes
) -> None:
    with engine(tmp_path, answer) as path:
        done = run(programs, "get", path, "/x", "0.5")
    assert (done.returncode == 0, done.stdout) == (not complaint, said)
    assert complaint in done.stderr
    assert done.stderr.count(b"\n") == (1 if complaint else 0)


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nfirst\nsecond\n", b"first\nsecond\n", 0),
        (b"HTTP/1.0 200 OK\r\n\r\n" + 1_000_000 * b"x", 1_000_000 * b"x", 0),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\nno", b"", 1),
        (b"HTTP/1.0 200", b"", 1),
        (b"", b"", 1),
    ],
)
def test_a_stream_is_printed_as_it_comes_and_failures_in_silence(
    tmp_path: Path, programs: Programs, answer: bytes, said: bytes, code: int
) -> None:
    with engine(tmp_path, answer) as path:
        done = run(programs, "stream", path, "/x")
    assert (done.returncode, done.stdout, done.stderr) == (code, said, b"")


def test_an_engine_that_comes_later_is_waited_for(tmp_path: Path, programs: Programs) -> None:
    command = [str(programs.engine_get), "get", str(tmp_path / "docker.sock"), "/x", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as asks:
        time.sleep(0.1)
        with engine(tmp_path, WHOLE):
            said, _ = asks.communicate(timeout=20)
    assert (asks.returncode, said) == (0, b"abcd")


def test_an_engine_that_never_answers_is_given_up(tmp_path: Path, programs: Programs) -> None:
    with engine(tmp_path, None) as path:
        done = run(programs, "get", path, "/x", "0.6")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"k8spilot: no answer from the engine at {path} within 0.6 s\n"


@pytest.mark.parametrize("words", [(), ("get", "socket"), ("stream", "socket", "/x", "3"), ("put", "socket", "/x")])
def test_words_that_it_does_not_know_are_answered_with_its_usage(programs: Programs, words: tuple[str, ...]) -> None:
    done = run(programs, *words)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"k8spilot: usage: engine-get get SOCKET PATH SECONDS")


def test_a_path_that_no_socket_can_have_is_an_error(programs: Programs) -> None:
    done = run(programs, "get", "/" + 200 * "x", "/x", "1")
    assert (done.returncode, b"too long" in done.stderr) == (1, True)
