"""engine-get (condor/engine-get.c) with gcc's checks of memory: any answer is printed, or is none."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.drawing import drawn
from tests.fuzz.test_payload_init import compile_checked
from tests.simulator.programs import SOURCES as PROGRAMS
from tests.unit.test_condor_engine_get import engine

HEADS = st.sampled_from(
    [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200\r\n", b"HTTP/1.0 500 Error\r\n", b"HTTP/1.", b"\0", b""]
)
LENGTHS = st.sampled_from(
    [b"Content-Length: 3\r\n", b"content-length:\r\n", b"Content-Length: 99999999999999999999\r\n", b""]
)
ANSWERS = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda *parts: b"".join(parts), HEADS, LENGTHS, st.sampled_from([b"\r\n", b"\n", b""]), st.binary(max_size=50)
    ),
    st.builds(lambda head, size: head + b"\r\n" + size * b"x", HEADS, st.integers(262_000, 263_000)),
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_checked(tmp_path_factory.mktemp("engine-get") / "engine-get", *PROGRAMS["engine-get"])


@drawn(100, answer=ANSWERS, is_stream=st.booleans())
def test_any_answer_is_printed_or_is_none(program: Path, answer: bytes, is_stream: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, engine(Path(folder), answer) as asked:
        words = ["stream", asked.path, "/x"] if is_stream else ["get", asked.path, "/x", "0.05"]
        done = subprocess.run([program, *words], capture_output=True, check=False, timeout=20)
    assert done.returncode in (0, 1)
    assert b"Sanitizer" not in done.stderr
    assert b"runtime error" not in done.stderr
    body = answer.partition(b"\r\n\r\n")[2]
    assert done.stdout == body if done.returncode == 0 else body.startswith(done.stdout)
