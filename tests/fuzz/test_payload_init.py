"""payload-init, built with the compiler's checks of memory and arithmetic, and a pilot that means no good."""

import array
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import pytest
from hypothesis import strategies as st

from k8spilot.model.command import Command
from tests.fuzz.drawing import drawn
from tests.simulator.container import own_uid
from tests.simulator.programs import CHECKOUT, Programs
from tests.simulator.programs import SOURCES as PROGRAMS

SOURCES: Final = CHECKOUT / "src/k8spilot/payload_init"
CHECKS: Final = ["-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LIBRARIES: Final = ["/lib", "/usr/lib", *(["/lib64"] if Path("/lib64").exists() else [])]

TEXTS = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.tuples(
            st.sampled_from(b"aeudfmx\0"),
            st.sampled_from([b"", b"A", b"A=b", b"A=", b"=", b"PATH*", b"*", b"777", b"9" * 30]),
        )
        | st.tuples(st.sampled_from(b"aeudfm"), st.binary(max_size=20)),
        max_size=12,
    ).map(lambda records: b"".join(bytes([letter]) + value + b"\0" for letter, value in records)),
    st.integers(1, 20000).map(lambda count: b"a\0" * count),
    st.integers(1, 20000).map(lambda count: b"eA=1\0" * count + b"axx\0"),
)


def compile_checked(target: Path, *sources: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("the compiler with its checks is gcc")
    built = subprocess.run([compiler, *CHECKS, "-o", target, *sources], capture_output=True, text=True, check=False)
    if "libasan" in built.stderr:
        pytest.skip("gcc has no libasan here")
    assert built.returncode == 0, built.stderr
    return target


def test_any_text_is_a_command_or_is_none(tmp_path: Path) -> None:
    program = compile_checked(tmp_path / "command", CHECKOUT / "tests/fuzz/command.c", SOURCES / "command.c")
    environment = {"A": "1", "ABC": "2", "PATH": "/bin", "NONE": ""}
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as reads:
        assert reads.stdin is not None
        assert reads.stdout is not None
        stdin, stdout = reads.stdin, reads.stdout

        def understood(text: bytes) -> bytes:
            try:
                stdin.write(struct.pack("=I", len(text)) + text)
                stdin.flush()
            except BrokenPipeError:
                pytest.fail(_last_words(reads.stderr))
            return stdout.readline() or pytest.fail(_last_words(reads.stderr))

        @drawn(600, text=TEXTS)
        def read(text: bytes) -> None:
            said = understood(text)
            if said == b"-\n":
                return
            arguments, _ = map(int, said.split())
            assert arguments == sum(one.startswith(b"a") for one in text.split(b"\0")[:-1])

        read()
        whole = Command((b"a", b"b"), (b"A=3", b"B=4"), removed=(b"N*",), directory=b"/", otherwise=b"sh").encode()
        assert understood(whole) == b"2 4\n"
        stdin.close()
        assert reads.wait(10) == 0, _last_words(reads.stderr)  # nothing of what it was told is left in its memory


def _last_words(stderr: IO[bytes] | None) -> str:
    assert stderr is not None
    return stderr.read().decode(errors="replace")[-2000:]


MESSAGES = st.one_of(
    st.sampled_from(
        b"run 0,run 1,run 1 terminal,run -1,run 99999999999999999999,run 7 terminal ,signal 0,signal -9,signal 64,"
        b"signal 99999999999,pause,resume,sweep,clear,renew,run,sweep\0,leash,hello 4 fresh scoped -".split(b",")
    ),
    st.binary(min_size=1, max_size=1500),
)
GOOD: Final = Command((b"/hello",)).encode()
STEPS = st.lists(
    st.one_of(
        st.tuples(MESSAGES, st.integers(0, 9), TEXTS | st.just(GOOD)),
        st.tuples(st.just(b"run 1"), st.just(4), TEXTS),
        st.tuples(st.just(b"run 2 terminal"), st.just(1), TEXTS),
    ),
    min_size=1,
    max_size=6,
)


@contextlib.contextmanager
def _container(programs: Programs, program: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run payload-init under a uid and in a PID namespace of its own: it kills all that it may."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    mounts = [f"{folder}/exchange:/k8spilot", f"{program.parent}:/program:ro", f"{programs.hello}:/hello:ro"]
    mounts += [f"{path}:{path}:ro" for path in LIBRARIES] + ["/dev:/dev"]
    command: list[str | Path] = [
        programs.container,
        str(own_uid()),
        root,
        *mounts,
        "--",
        f"/program/{program.name}",
        "/k8spilot/pilot.sock",
    ]
    environment = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"}
    with (
        (folder / "words").open("wb") as words,
        subprocess.Popen(command, stderr=words, env=environment) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(10)


def test_a_pilot_that_means_no_good_does_not_break_it(programs: Programs) -> None:
    folder = Path(tempfile.mkdtemp(prefix="k8spilot-"))
    folder.chmod(0o755)
    built = folder / "built"
    built.mkdir()
    built.chmod(0o755)
    try:
        program = compile_checked(built / "payload-init", *PROGRAMS["payload-init"])
        _meet(programs, program, folder)
    finally:
        shutil.rmtree(folder)


def _meet(programs: Programs, program: Path, folder: Path) -> None:
    exchange = folder / "exchange"
    exchange.mkdir()
    path = exchange / "pilot.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen(4)
        listening.settimeout(10)
        with _container(programs, program, folder) as process:

            @drawn(150, steps=STEPS)
            def talk(steps: list[tuple[bytes, int, bytes]]) -> None:
                """When a pilot hangs up, it looks for the next; it runs one job in its life, and other commands."""
                pilot = _accept(listening, process)
                with pilot:
                    _hello(pilot)
                    for message, count, text in steps:
                        _tell(pilot, message, count, text)
                    time.sleep(0.01)
                assert process.poll() is None, (folder / "words").read_text(errors="replace")

            talk()
            with _accept(listening, process) as pilot:  # it is as good as before
                _hello(pilot)
                _tell(pilot, b"run 5", 4, GOOD)
                said = _until(pilot, b"exit 5 ")
                assert said == b"exit 5 0"
                _tell(pilot, b"sweep", 0, b"")
                _until(pilot, b"swept")
        words = (folder / "words").read_text(errors="replace")
        assert process.returncode == 143, words
        assert "Sanitizer" not in words, words
        assert "runtime error" not in words, words


def _accept(listening: socket.socket, process: "subprocess.Popen[bytes]") -> socket.socket:
    try:
        connection, _ = listening.accept()
    except TimeoutError:
        process.terminate()
        pytest.fail("it does not connect")
    connection.settimeout(10)
    return connection


def _hello(pilot: socket.socket) -> None:
    data, descriptors, _, _ = socket.recv_fds(pilot, 1024, 16)
    for one in descriptors:
        os.close(one)
    assert data.startswith(b"hello 4 ")


def _until(pilot: socket.socket, beginning: bytes) -> bytes:
    while True:
        data, descriptors, _, _ = socket.recv_fds(pilot, 1024, 16)
        for one in descriptors:
            os.close(one)
        if not data or data.startswith(beginning):
            return data


def _tell(pilot: socket.socket, message: bytes, count: int, text: bytes) -> None:
    """Send a message with `count` descriptors, the first of a command's text."""
    ends = []
    if count:
        memory = os.memfd_create("command")
        os.write(memory, text)
        ends = [memory, *(os.open("/dev/null", os.O_RDWR) for _ in range(count - 1))]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ends))] if ends else []
    with contextlib.suppress(OSError):
        pilot.sendmsg([message], rights)
    for end in ends:
        os.close(end)
