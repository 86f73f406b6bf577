"""The program by which HTCondor's scripts ask the engine (condor/engine-get.c)."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.simulator.programs import Programs

WHOLE = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabcd"


class Engine:
    """Gives one connection after another its answer, in parts with a pause after each."""

    def __init__(self, path: str, answers: Sequence[Sequence[bytes]], pause: float) -> None:
        self.path = path
        self.requests: list[bytes] = []
        self._answers = answers
        self._pause = pause

    def serve(self, listening: socket.socket) -> None:
        """Answer, to the last answer."""
        with suppress(OSError):  # the test has ended
            for parts in self._answers:
                self._answer(parts, listening.accept()[0])

    def _answer(self, parts: Sequence[bytes], connection: socket.socket) -> None:
        with connection, suppress(BrokenPipeError, ConnectionResetError):
            self.requests.append(connection.recv(4096))
            for part in parts:
                connection.sendall(part)
                time.sleep(self._pause)


@contextmanager
def engine(folder: Path, *answers: bytes | Sequence[bytes], pause: float = 0) -> Iterator[Engine]:
    """Serve an engine that gives these answers."""
    path = str(folder / "docker.sock")
    found = Engine(path, [[one] if isinstance(one, bytes) else one for one in answers], pause)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        thread = threading.Thread(target=found.serve, args=(listening,))
        thread.start()
        try:
            yield found
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def run(programs: Programs, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([programs.engine_get, *arguments], capture_output=True, check=False, timeout=20)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nDetectedGPUs=0\n", b"DetectedGPUs=0\n"),
        (WHOLE, b"abcd"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + 100_000 * b"x", 100_000 * b"x"),
    ],
)
def test_an_answer_is_printed(tmp_path: Path, programs: Programs, answer: bytes, said: bytes) -> None:
    with engine(tmp_path, answer) as asked:
        done = run(programs, "get", asked.path, "/k8spilot/x", "20")
    assert (done.returncode, done.stdout, done.stderr) == (0, said, b"")
    assert asked.requests == [b"GET /k8spilot/x HTTP/1.0\r\nHost: k8spilot\r\n\r\n"]


@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", b"HTTP/1.0 200 OK\r\n", WHOLE[:-1], WHOLE.replace(b"4", b"5")])
def test_an_engine_that_ends_in_the_middle_of_its_answer_is_asked_again(
    tmp_path: Path, programs: Programs, first: bytes
) -> None:
    with engine(tmp_path, first, first, WHOLE) as asked:
        done = run(programs, "get", asked.path, "/x", "20")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"abcd", b"")
    assert len(asked.requests) == 3


def test_an_engine_that_comes_later_is_waited_for(tmp_path: Path, programs: Programs) -> None:
    command = [str(programs.engine_get), "get", str(tmp_path / "docker.sock"), "/x", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as asks:
        time.sleep(0.1)
        with engine(tmp_path, WHOLE):
            said, _ = asks.communicate(timeout=20)
    assert (asks.returncode, said) == (0, b"abcd")


@pytest.mark.parametrize("status", ["404 Not Found", "409 Conflict", "500 Internal Server Error"])
def test_what_the_engine_refuses_is_not_asked_again(tmp_path: Path, programs: Programs, status: str) -> None:
    answer = f'HTTP/1.0 {status}\r\nContent-Type: text\r\n\r\n{{"message": "no job can start"}}\nmore'.encode()
    with engine(tmp_path, answer, WHOLE) as asked:
        done = run(programs, "get", asked.path, "/x", "20")
    assert (done.returncode, done.stdout, len(asked.requests)) == (1, b"", 1)
    words = f'k8spilot: the engine at {asked.path} answers HTTP/1.0 {status}: {{"message": "no job can start"}}\n'
    assert done.stderr.decode() == words


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([b""], "it closed the connection in the middle of its answer"),
        ([b"HTTP/1.0 200 OK\r\n", b""], "it takes too long"),
        ([b"x"] * 20, "it takes too long"),
    ],
)
def test_no_whole_answer_in_time_is_an_error_with_a_reason(
    tmp_path: Path, programs: Programs, answer: Sequence[bytes], why: str
) -> None:
    with engine(tmp_path, answer, pause=0 if len(answer) == 1 else 0.5) as asked:
        done = run(programs, "get", asked.path, "/x", "0.3")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"k8spilot: no answer from the engine at {asked.path} within 0.3 s ({why})\n"


def test_without_an_engine_the_reason_is_that_of_the_socket(tmp_path: Path, programs: Programs) -> None:
    done = run(programs, "get", str(tmp_path / "none"), "/x", "0.1")
    assert (done.returncode, b"within 0.1 s (No such file or directory)" in done.stderr) == (1, True)


def test_an_engine_that_takes_no_connections_is_given_up(tmp_path: Path, programs: Programs) -> None:
    """A frozen engine: the kernel has a full queue of connections."""
    path = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as queued:
        listening.bind(path)
        listening.listen(0)
        queued.connect(path)
        done = run(programs, "get", path, "/x", "0.5")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.endswith(b"within 0.5 s (it takes no connection)\n")


def test_an_answer_that_is_too_long_is_an_error(tmp_path: Path, programs: Programs) -> None:
    with engine(tmp_path, b"HTTP/1.0 200 OK\r\n\r\n" + 300_000 * b"x", WHOLE) as asked:
        done = run(programs, "get", asked.path, "/x", "20")
    assert (done.returncode, done.stdout, len(asked.requests)) == (1, b"", 1)
    assert done.stderr.endswith(b"is too long\n")


@pytest.mark.slow
def test_a_stream_is_printed_as_it_comes(tmp_path: Path, programs: Programs) -> None:
    parts = [b"HTTP/1.0 200", b" OK\r\n\r\nfirst\n", 1_000_000 * b"x", b"\nlast\n"]
    command = [str(programs.engine_get), "stream", str(tmp_path / "docker.sock"), "/x"]
    with engine(tmp_path, parts, pause=0.5), subprocess.Popen(command, stdout=subprocess.PIPE) as prints:
        assert prints.stdout is not None
        assert prints.stdout.readline() == b"first\n"
        assert prints.poll() is None
        assert prints.stdout.read() == 1_000_000 * b"x" + b"\nlast\n"
    assert prints.returncode == 0


@pytest.mark.parametrize("answer", [b"HTTP/1.0 503 Service Unavailable\r\n\r\nno", b"HTTP/1.0 200", b""])
def test_a_stream_that_fails_fails_in_silence(tmp_path: Path, programs: Programs, answer: bytes) -> None:
    with engine(tmp_path, answer) as asked:
        done = run(programs, "stream", asked.path, "/x")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert run(programs, "stream", str(tmp_path / "none"), "/x").returncode == 1


@pytest.mark.parametrize("words", [("get", "SOCKET", "/x", "5"), ("stream", "SOCKET", "/x")])
def test_output_that_nobody_reads_is_a_failure(tmp_path: Path, programs: Programs, words: tuple[str, ...]) -> None:
    with engine(tmp_path, b"HTTP/1.0 200 OK\r\n\r\n" + 200_000 * b"x") as asked:
        command = [str(programs.engine_get), *(asked.path if word == "SOCKET" else word for word in words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as prints:
            assert prints.stdout is not None
            prints.stdout.close()
            assert prints.wait(20) == 1


@pytest.mark.parametrize("words", [(), ("get", "socket"), ("stream", "socket", "/x", "3"), ("put", "socket", "/x")])
def test_words_that_it_does_not_know_are_answered_with_its_usage(programs: Programs, words: tuple[str, ...]) -> None:
    done = run(programs, *words)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"k8spilot: usage: engine-get get SOCKET PATH SECONDS")


def test_a_path_that_no_socket_can_have_is_an_error(programs: Programs) -> None:
    done = run(programs, "get", "/" + 200 * "x", "/x", "1")
    assert (done.returncode, b"too long" in done.stderr) == (1, True)
