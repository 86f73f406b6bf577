"""docker-client, HTCondor's DOCKER, with an engine of the test's own."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from k8spilot.condor.programs import split_arguments, words
from tests.simulator.programs import Programs
from tests.unit.docker_lines import CONTAINER, IMAGE, create

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def ends(code: int, output: bytes = b"", errors: bytes = b"") -> bytes:
    """A whole answer."""
    return HEAD + frame(1, output) + frame(2, errors) + frame(3, bytes([code]))


BECOME_DOCKER: Final = HEAD + frame(4, b"")


@dataclass
class Request:
    """Request that the client has sent."""

    headers: dict[str, str]
    words: list[str]


@dataclass
class Engine:
    """Answers with one of its answers after the other, the last one again and again; an empty one hangs up."""

    listening: socket.socket
    answers: list[bytes] = field(default_factory=lambda: [ends(0)])
    asked: list[Request] = field(default_factory=list)

    def serve(self) -> None:
        """Serve clients until the socket is shut down."""
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                with connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        head: dict[str, str] = {}
        assert stream.readline() == b"POST /htcondor/command HTTP/1.1\r\n"
        while (line := stream.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            head[name] = value
        body = stream.read(int(head["Content-Length"])).decode(errors="surrogateescape")
        assert body.endswith("\0")
        self.asked.append(Request(head, body[:-1].split("\0")))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        connection.sendall(answer)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        found = Engine(listening)
        thread = threading.Thread(target=found.serve)
        thread.start()
        yield found
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@dataclass
class Client:
    """The program, as it is installed in a folder."""

    folder: Path
    program: Path
    variables: dict[str, str]

    def __call__(self, *line: str | bytes, **variables: str) -> "subprocess.CompletedProcess[bytes]":
        """Run it as HTCondor does."""
        environment = {**self.variables, **variables}
        command = [str(self.program), *line]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)


Install = Callable[..., Client]


@pytest.fixture
def install(tmp_path: Path, programs: Programs) -> Install:
    """Installs the program, with a script in the place of docker's own client."""

    def make(docker: str = "echo called", rootless: bool = False, extra: Sequence[str] = ()) -> Client:
        own, program = tmp_path / "own-docker", tmp_path / "docker-client"
        own.write_text(f'#!/bin/sh\necho "$DOCKER_CONFIG $*" >> {tmp_path}/calls\n{docker}\n')
        own.chmod(0o755)
        program.unlink(missing_ok=True)
        program.symlink_to(programs.docker_client)
        (tmp_path / "docker-client.settings").write_text(words("yes" if rootless else "", str(own), *extra))
        return Client(tmp_path, program, {"DOCKER_HOST": f"unix://{tmp_path}/s", "PATH": os.environ["PATH"]})

    return make


@pytest.fixture
def client(install: Install) -> Client:
    return install()


def test_a_line_is_the_engines_and_the_answer_the_clients(engine: Engine, client: Client) -> None:
    engine.answers = [ends(7, b"out\0\xff", b"err\n")]
    line = create("a b", "", "grün", variables=["A=1\n2"])
    done = client(*line)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\0\xff", b"err\n")
    assert engine.asked[0].words == line
    assert engine.asked[0].headers["K8spilot-Extra-Words"] == "0"


def test_bytes_that_are_no_text_arrive(engine: Engine, client: Client) -> None:
    client("pull", "-q", b"\xff\x80")
    assert engine.asked[0].words[2].encode(errors="surrogateescape") == b"\xff\x80"


def test_a_line_of_megabytes_arrives(engine: Engine, client: Client) -> None:
    line = create(*["x" * 120_000] * 12)
    assert client(*line).returncode == 0
    assert engine.asked[0].words == line


def test_an_answer_of_megabytes_arrives_in_any_pieces(engine: Engine, client: Client) -> None:
    data = os.urandom(3_000_000)
    parts = b"".join(frame(1, data[at : at + 70_001]) for at in range(0, len(data), 70_001))
    engine.answers = [HEAD + parts + frame(3, b"\0")]
    done = client("info")
    assert (done.returncode, done.stdout == data) == (0, True)


def test_a_pull_never_fails(engine: Engine, client: Client) -> None:
    engine.answers = [ends(1, errors=b"no"), b"", b"HTTP/1.1 500 Oh\r\n\r\n{}"]
    assert [client("pull", "-q", IMAGE).returncode for _ in engine.answers] == [0, 0, 0]


@pytest.mark.parametrize("line", [create("x"), ["info"]], ids=["create", "info"])
def test_what_an_engine_that_died_was_asked_is_asked_of_the_next(
    engine: Engine, client: Client, line: list[str]
) -> None:
    engine.answers = [b"", HEAD + frame(1, b""), ends(0, b"fine\n")]
    done = client(*line)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"fine\n", b"")
    assert [one.words for one in engine.asked] == [line] * 3


def test_an_engine_that_stays_away_is_told_of_at_last(engine: Engine, client: Client) -> None:
    engine.answers = [b""]
    done = client(*create("x"))
    assert (done.returncode, done.stderr) == (
        1,
        b"k8spilot: the engine has ended, or does not answer; it restarts within a second\n",
    )
    assert len(engine.asked) == 10


def test_without_a_socket_nothing_hangs(client: Client) -> None:
    assert client("rm", "-f", "-v", CONTAINER).returncode == 1
    assert client("start", "-a", CONTAINER).returncode == 125
    assert b"DOCKER_HOST" in client("info", DOCKER_HOST="tcp://x").stderr
    assert b"DOCKER_HOST" in client("info", DOCKER_HOST=f"unix:///{'x' * 120}").stderr


@pytest.mark.parametrize("line", [["rm", "-f", "-v", CONTAINER], ["start", "-a", CONTAINER], ["kill", "x"]])
def test_no_other_command_is_repeated(engine: Engine, client: Client, line: list[str]) -> None:
    engine.answers = [b""]
    assert client(*line).returncode != 0
    assert len(engine.asked) == 1


def test_an_error_without_frames_is_told_of(engine: Engine, client: Client) -> None:
    engine.answers = [b'HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n{"message":"too many"}']
    done = client(*create("x"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b'Error response from daemon: {"message":"too many"}'


@pytest.mark.parametrize(
    "line",
    [
        ("images", "--format", "{{.Repository}}:{{.Tag}} {{.ID}} {{.Size}}"),
        ("images", "-q", IMAGE),
        ("inspect", "--format", "{{.Id}} {{.Metadata.LastTagTime}}"),
        ("tag", IMAGE, IMAGE),
    ],
)
def test_what_has_one_answer_before_every_job_asks_nobody(
    engine: Engine, client: Client, line: tuple[str, ...]
) -> None:
    done = client(*line)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert engine.asked == []


def test_dockers_client_tells_its_version(client: Client) -> None:
    assert client("-v").stdout == b"called\n"
    assert (client.folder / "calls").read_text() == f"{client.folder}/docker -v\n"


def test_only_a_job_that_sends_credentials_says_so(engine: Engine, client: Client) -> None:
    folders = {"": False, f"{client.folder}/docker": False, "/tmp/docker_config.7": True}
    for folder, sends in folders.items():
        client("pull", "-q", IMAGE, DOCKER_CONFIG=folder)
        assert ("X-K8spilot-Sends-Credentials" in engine.asked[-1].headers) == sends


def test_the_operators_own_arguments_are_the_engines_to_compare(engine: Engine, install: Install) -> None:
    own = ["--env=A=b 'c'", ""]
    client = install(extra=own)
    client(*create("x", extra=own))
    client("info")
    assert engine.asked[0].words == [*own, *create("x", extra=own)]
    assert [one.headers["K8spilot-Extra-Words"] for one in engine.asked] == ["2", "0"]


def test_settings_that_are_missing_are_named(engine: Engine, client: Client) -> None:
    (client.folder / "docker-client.settings").write_text("")
    done = client("info")
    assert (done.returncode, b"docker-client.settings is not readable" in done.stderr) == (1, True)
    assert engine.asked == []


def test_a_neighbour_does_not_see_the_environment_of_a_job(engine: Engine, client: Client) -> None:
    seen: list[bytes] = []

    class Slow(list[bytes]):
        def __getitem__(self, place: Any) -> Any:
            seen.extend(line for line in _command_lines() if line.startswith(f"{client.program}\0".encode()))
            return super().__getitem__(place)

    engine.answers = Slow([ends(0)])
    assert client(*create("x", variables=["SECRET=tell-nobody"])).returncode == 0
    assert len(seen) == 1
    assert seen[0].split(b"\0")[:2] == [str(client.program).encode(), b"create"]
    assert not any(seen[0].split(b"\0")[2:])


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def requested(engine: Engine, install: Install, scratch: Path | str, execute: Path) -> tuple[str | None, str | None]:
    """The disk and the GPUs that the client says a job has requested."""
    line = create("x", variables=["A=_CONDOR_SCRATCH_DIR=/", f"_CONDOR_SCRATCH_DIR={scratch}"])
    assert install(rootless=True)(*line, _CONDOR_EXECUTE=str(execute)).returncode == 0
    headers = engine.asked[-1].headers
    return headers.get("K8spilot-Disk"), headers.get("K8spilot-Gpus")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "slot/dir_7/scratch"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ('Cmd = "x"\nRequestGPUs = 2\nA = 1\nRequestDisk = 65536\n', ("65536", "2")),
        ("requestgpus=0\nREQUESTDISK=1", ("1", "0")),
        ("RequestGPUs \t= \t 3 \t\r\n", (None, "3")),
        ("RequestCpus = 1\n", (None, "0")),
        ("", (None, "0")),
        ("RequestGPUs = ifThenElse(x = 1, 1, 2)\nRequestDisk = DiskUsage\n", (None, None)),
        ("RequestGPUs = -1\n", (None, None)),
        ("RequestGPUs = 1.5\nRequestGPUs = 2\n", (None, None)),
        ("RequestGPUs = 12345\nRequestDisk = 1234567890123456\n", (None, None)),
        ("RequestGPUs = 1" + " " * 300_000 + "x\n", (None, None)),
        ("RequestGPUs = 1\0\nXRequestDisk = 1\nRequestDiskX = 2\n", (None, None)),
        ("RequestGPUs = \nRequestDisk\n=5\n", (None, None)),
        ("x" * (4 << 20) + "\nRequestDisk = 5\n", (None, "0")),
    ],
)
def test_the_jobs_own_ad_says_what_it_asked_for(
    engine: Engine, install: Install, scratch: Path, ad: str, wanted: tuple[str | None, str | None]
) -> None:
    (scratch / ".job.ad").write_text(ad)
    assert requested(engine, install, scratch, scratch.parents[1]) == wanted


def test_an_ad_that_is_none_is_not_read(engine: Engine, install: Install, scratch: Path, tmp_path: Path) -> None:
    execute, unknown = tmp_path / "slot", (None, None)
    ad = scratch / ".job.ad"
    assert requested(engine, install, scratch, execute) == unknown
    (scratch / "elsewhere").write_text("RequestGPUs = 1\nRequestDisk = 5\n")
    ad.symlink_to("elsewhere")
    assert requested(engine, install, scratch, execute) == unknown
    ad.unlink()
    os.mkfifo(ad)
    assert requested(engine, install, scratch, execute) == unknown
    ad.unlink()
    ad.mkdir()
    assert requested(engine, install, scratch, execute) == unknown
    ad.rmdir()
    (scratch / "elsewhere").rename(ad)
    assert requested(engine, install, scratch, execute) == ("5", "1")
    (execute / "link").symlink_to("dir_7")
    for path in (execute / "link/scratch", f"{execute}/dir_7/../dir_7/scratch", f"{execute}x/dir_7/scratch", "/", ""):
        assert requested(engine, install, path, execute) == unknown


GROUP = 47002


def modes(folder: Path) -> dict[str, tuple[int, int]]:
    found = sorted(path for path in folder.rglob("*") if not path.is_symlink())
    return {str(one.relative_to(folder)): (one.stat().st_gid, one.stat().st_mode & 0o7777) for one in found}


@pytest.mark.skipif(os.geteuid() != 0, reason="changes groups")
def test_where_nobody_is_root_a_sandbox_is_the_jobs_once_its_container_is_there(
    engine: Engine, install: Install, tmp_path: Path
) -> None:
    execute, outside = tmp_path / "slot", tmp_path / "outside"
    sandbox = execute / f"dir_{os.getpid()}"
    (sandbox / "scratch/deep").mkdir(parents=True, mode=0o700)
    for name in ("scratch/deep/input", "scratch/program", "scratch/of-another", "outside"):
        (sandbox / name).write_text("x")
    (sandbox / "scratch/program").chmod(0o4700)
    os.chown(sandbox / "scratch/of-another", 47001, 47001)
    outside.mkdir(mode=0o700)
    (outside / "file").write_text("x")
    (sandbox / "scratch/out").symlink_to(outside)
    (sandbox / "scratch/file").symlink_to(outside / "file")
    (execute / "dir_1").symlink_to(outside)
    (execute / "dir_2").mkdir()
    (execute / "dir_2/scratch").symlink_to(outside)
    (sandbox / "own").mkdir(mode=0o700)
    os.chown(execute, -1, GROUP)
    before, beside = modes(execute), modes(outside)
    variables = {"_CONDOR_EXECUTE": str(execute)}

    client = install(rootless=True)
    engine.answers = [ends(1, errors=b"no\n"), ends(0)]
    assert client(*create("x"), **variables).returncode == 1
    assert modes(execute) == before
    assert client(*create("x"), **variables).returncode == 0
    after, name = modes(execute), sandbox.name
    assert {key: value for key, value in after.items() if value != before[key]} == {
        f"{name}/scratch": (GROUP, before[f"{name}/scratch"][1] | 0o2070),
        f"{name}/scratch/deep": (GROUP, before[f"{name}/scratch/deep"][1] | 0o2070),
        f"{name}/scratch/deep/input": (GROUP, before[f"{name}/scratch/deep/input"][1] | 0o060),
        f"{name}/scratch/program": (GROUP, 0o4770),
    }
    assert modes(outside) == beside
    assert (outside.stat().st_gid, outside.stat().st_mode & 0o7777) == (0, 0o700)


def test_with_root_a_sandbox_stays_as_it_is(engine: Engine, client: Client, scratch: Path) -> None:
    before = modes(scratch.parents[1])
    assert client(*create("x"), _CONDOR_EXECUTE=str(scratch.parents[1])).returncode == 0
    assert engine.asked
    assert modes(scratch.parents[1]) == before


def test_sessions_beside_a_job_are_few(engine: Engine, install: Install, tmp_path: Path) -> None:
    """Each has a client whose memory is the pilot's, and a job can have them begun without end."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "calls").touch()
    engine.answers = [BECOME_DOCKER]
    client = install(f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done; exit 3")
    session = partial(client, "exec", "-i", "-e", "A=1", CONTAINER, "sh", _CONDOR_EXECUTE="/x/slot-1")
    with ThreadPoolExecutor(8) as pool:
        begun = [pool.submit(session, DOCKER_CONFIG="/dir_7/.docker") for _ in range(8)]
        while len((tmp_path / "calls").read_text().splitlines()) < 8:
            time.sleep(0.01)
        one_more = session()
        (tmp_path / "end").touch()
    message = b"k8spilot: this job has 8 sessions already; end one of them first\n"
    assert (one_more.returncode, one_more.stderr) == (1, message)
    assert {one.result().returncode for one in begun} == {3}
    assert session().returncode == 3
    calls = (tmp_path / "calls").read_text().splitlines()
    assert set(calls) == {f"{tmp_path}/docker exec -i -e A=1 {CONTAINER} sh"}
    assert {path.name for path in (tmp_path / "sessions").iterdir()} == {f"slot-1-{number}" for number in range(1, 9)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("--gpus all", ["--gpus", "all"]),
        ("\"--a 'b c' d''e 'it''s' \"\"q\"\"\"", ["--a", "b c", "de", "it's", '"q"']),
        ("\"'' x\"", ["", "x"]),
    ],
)
def test_the_operators_own_arguments_are_read_as_htcondor_reads_them(text: str, found: list[str]) -> None:
    assert split_arguments(text) == found


@pytest.mark.parametrize("text", ['"a', '"\'a"', '"'])
def test_arguments_with_a_quote_too_few_are_told_of(text: str) -> None:
    with pytest.raises(ValueError, match="quote"):
        split_arguments(text)


def errors_of(client: Client, *line: str, kill: bool = False) -> str:
    """Run a command, kill it if nobody answers, and return the text in HTCondor's file of errors."""
    file = client.folder / "errors"
    with file.open("wb") as errors:
        running = subprocess.Popen([str(client.program), *line], env=client.variables, stderr=errors)
        if kill:
            deadline = time.monotonic() + 10
            while not file.stat().st_size and time.monotonic() < deadline:
                time.sleep(0.01)
            running.kill()
        running.wait(timeout=30)
    return file.read_text()


@pytest.mark.parametrize("line", [["pull", "-q", IMAGE], create()])
def test_a_job_whose_docker_client_is_killed_is_held_with_the_reason(
    tmp_path: Path, install: Install, line: list[str]
) -> None:
    client = install()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        words = errors_of(client, *line, kill=True)
    assert words.startswith("k8spilot: HTCondor's daemons ended while they prepared the job")
    assert words.endswith("release it (condor_release)\n")


@pytest.mark.parametrize(("answer", "words"), [(ends(0), ""), (ends(1, errors=b"no such image\n"), "no such image\n")])
def test_the_engines_answer_takes_the_place_of_that_reason(
    engine: Engine, client: Client, answer: bytes, words: str
) -> None:
    engine.answers = [answer]
    assert errors_of(client, *create()) == words
