"""Texts of any kind in a submit file: the engine reads the line as HTCondor meant it, or refuses the line.

The witness is docker's own command line client, whose request is recorded on a socket of the test: the engine must make
of a line the request that docker's client makes.
"""

import json
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import strategies as st

from k8spilot.common.errors import PilotError
from k8spilot.docker.command_lines.create import parse_create
from k8spilot.docker.command_lines.grammar import Create, UnknownLine
from k8spilot.model.reference import Reference
from tests.fuzz.drawing import drawn

NAME: Final = "HTCJob1_0_slot1_PID7"
LABEL: Final = "org.htcondorproject"

OPTIONS: Final = st.sampled_from(
    [
        *(f"--label={LABEL}=False", "--name=x", "--name", "--env-file=/etc/passwd", "--cidfile=/tmp/x", "--privileged"),
        *("--security-opt=seccomp=/dev/zero", "--entrypoint=/bin/sh", "--entrypoint", "--volume=/:/host", "-v", "-e"),
        *("-eA=B", "-it", "--rm", "--", "-", "--help", "--network=host", "--network=a:b", "--hostname", "--hostname=a"),
        *("--shm-size", "--shm-size=5", "-p", "-p=80:80", "--pull", "--pull=always", "--user=0:0", "--group-add=0"),
        *("--init=false", "--memory=1@", "--cpu-shares=1:2", "--device=/dev/x", "--gpus=all", "--log-driver=none"),
    ]
)
WORDS: Final = OPTIONS | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
IMAGES: Final = (
    WORDS
    | st.sampled_from(
        ["busybox", "busybox:1", "a.example:5000/b/c:d", "[::1]:5000/x", f"x@sha256:{'0' * 64}", ":", "@"]
    )
    | st.builds("{}:{}".format, OPTIONS, st.sampled_from(["", "latest", "a/b", "a@b"]))
)


@dataclass
class Submitted:
    """Parts of the line that a user can choose."""

    image: str
    executable: str
    arguments: list[str]
    variables: dict[str, str]
    overrides: bool
    network: str
    ports: list[int]
    pulls: bool


def line(job: Submitted, image: str) -> list[str]:
    """As HTCondor writes it (docker-api.cpp, createContainer)."""
    words = ["--cpu-shares=100", "--memory=128m", "--cap-drop=all", "--cap-add=SYS_PTRACE"]
    words += ["--security-opt", "no-new-privileges", "--init", "--name", NAME, f"--label={LABEL}=True"]
    words += ["--log-driver", "none"]
    words += [word for name, value in job.variables.items() for word in ("-e", f"{name}={value}")]
    words += ["--volume", "/slot/dir_7:/slot/dir_7", "--workdir", "/slot/dir_7/scratch", "--user", "65534:65534"]
    words += ["--group-add", "65534"]
    words += [f"--network={job.network}"] if job.network in ("host", "none", "bridge") else []
    words += [] if job.network == "host" else ["--hostname", "alice-1.0-lab"]
    words += [word for port in job.ports for word in ("-p", str(port))]
    words += ["--pull", "always"] if job.pulls else []
    if not job.executable:
        return [*words, image, *job.arguments]
    chosen = ["--entrypoint", job.executable, image] if job.overrides else [image, job.executable]
    return [*words, *chosen, *job.arguments]


def image_of(text: str) -> str:
    """As HTCondor makes it of the attribute (docker_proc.cpp, StartJob)."""
    text = text.removeprefix("docker://")
    return text if "@" in text or ":" in text.rpartition("/")[2] else f"{text}:latest"


@dataclass
class Witness:
    """Docker's client, and what it asks for."""

    program: Path
    socket: Path
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def create(self, words: list[str]) -> "subprocess.CompletedProcess[bytes]":
        """Have it run as a job's container with standard input is created."""
        environment = {
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": "/",
        }
        command = [str(self.program), "create", "--interactive", *words]
        return subprocess.run(command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """An engine that takes every request to create down."""

    daemon_threads = True
    witness: Witness


class Handler(BaseHTTPRequestHandler):
    """One connection of docker's client."""

    server: Server
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        """A client of a Unix socket has none."""
        return ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Answer the client's first question."""
        self._answer(200, b"")

    do_GET = do_HEAD  # noqa: N815

    def do_POST(self) -> None:
        """Take it down; a pull is one of `--pull always`."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/containers/create" in self.path:
            self.server.witness.asked.append((self.path, json.loads(body)))
            self._answer(201, json.dumps({"Id": "0" * 64, "Warnings": []}).encode())
        else:
            self._answer(200, b'{"status":"x"}\n')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Api-Version", "1.45")
        self.send_header("Ostype", "linux")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    """Docker's own client, where there is one."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("docker's command line client is not installed")
    found = Witness(Path(docker), tmp_path_factory.mktemp("client") / "s")
    with Server(str(found.socket), Handler) as server:
        server.witness = found
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


NAMES: Final = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
VALUES: Final = WORDS.filter(lambda text: "\n" not in text)
JOBS: Final = st.builds(
    Submitted,
    image=IMAGES,
    executable=WORDS,
    arguments=st.lists(WORDS, max_size=3),
    variables=st.dictionaries(NAMES, VALUES, max_size=2),
    overrides=st.booleans(),
    network=st.sampled_from(["", "host", "none", "bridge", "nat"]),
    ports=st.lists(st.integers(1, 65535), max_size=2),
    pulls=st.booleans(),
)


SAME: Final = (
    "Image",
    "Entrypoint",
    "Cmd",
    "WorkingDir",
    "User",
    "Hostname",
    "Labels",
    "ExposedPorts",
    "Volumes",
)
SAME_OF_HOST: Final = (
    *("CapAdd", "CapDrop", "CpuShares", "GroupAdd", "Init", "LogConfig", "Memory", "Mounts", "Devices"),
    *("DeviceRequests", "PortBindings", "SecurityOpt", "ShmSize"),
)
STREAMS: Final = ("AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce")


def read(words: list[str]) -> Create | None:
    """Return the request that the engine reads from a line; None if it refuses the line."""
    try:
        return parse_create(words, (), {})
    except UnknownLine:
        return None


def is_meant(job: Submitted, found: Create) -> None:
    """The engine reads what HTCondor has written for the job."""
    overrides = job.overrides and bool(job.executable)
    arguments = [*([] if overrides or not job.executable else [job.executable]), *job.arguments]
    body = found.body
    assert (found.name, found.pulls, body["Image"]) == (NAME, job.pulls, image_of(job.image))
    assert body.get("Entrypoint") == ([job.executable] if overrides else None)
    assert (body["Cmd"] or []) == arguments
    assert body.get("Env", []) == [f"{name}={value}" for name, value in job.variables.items()]
    assert body["Labels"] == {LABEL: "True"}


def is_same(found: Create, asked: dict[str, Any]) -> None:
    """Docker's client would have asked for the same, and for nothing else."""
    host = asked["HostConfig"]
    for key in SAME:
        assert (found.body.get(key) or None) == (asked.get(key) or None), key
    assert sorted(found.body.get("Env", [])) == sorted(asked.get("Env") or [])
    assert sorted(found.body["HostConfig"].pop("Binds")) == sorted(host["Binds"])  # docker's client has no order here
    for key in SAME_OF_HOST:
        assert (found.body["HostConfig"].get(key) or None) == (host.get(key) or None), key
    assert found.body["HostConfig"].get("NetworkMode", "default") in (host["NetworkMode"], "default")
    assert [asked[key] for key in STREAMS] == [found.body[key] for key in STREAMS] == [True] * len(STREAMS)
    assert (host["Privileged"], host["AutoRemove"], asked["Tty"]) == (False, False, False)


@drawn(120, job=JOBS)
def test_the_engine_reads_what_htcondor_meant_and_docker_would_have_read_or_nothing(
    witness: Witness, job: Submitted
) -> None:
    witness.asked.clear()
    words = line(job, image_of(job.image))
    found = read(words)
    if found is None:
        return
    is_meant(job, found)
    done = witness.create(words)
    if done.returncode:  # its client checks some names itself, which the engine checks later
        with pytest.raises(PilotError):
            Reference.parse(image_of(job.image))
        return
    ((path, asked),) = witness.asked
    assert f"name={NAME}" in path
    is_same(found, asked)


def test_docker_reads_something_else_where_the_engine_refuses(witness: Witness) -> None:
    """Else the test above would show nothing."""
    witness.asked.clear()
    job = Submitted(f"--label={LABEL}=False", "--entrypoint=/bin/sh", ["busybox", "-c", "id"], {}, False, "", [], False)
    words = line(job, image_of(job.image))
    assert read(words) is None
    assert witness.create(words).returncode == 0
    ((_, body),) = witness.asked
    assert (body["Labels"], body["Image"]) == ({LABEL: "False:latest"}, "busybox")


OPERATORS: Final = [
    ["--device", "/dev/x"],
    ["--device=/dev/x:/dev/y:r"],
    ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"],
    ["--gpus", "all"],
    ["--gpus=2"],
    ["--gpus", '"device=0,1"'],
    ["--gpus", "device=GPU-1,driver=nvidia"],
    ["--gpus", "driver=nvidia,capabilities=utility"],
    ["-e", "A=b c", "--env=C=d"],
    ["-v", "/a:/b:ro", "--volume=/c:/d"],
    ["--mount", "type=bind,source=/a,target=/b,readonly"],
    ["--shm-size", "1048576", "-p", "80"],
]


@pytest.mark.parametrize("extra", OPERATORS, ids=" ".join)
def test_the_operators_arguments_are_read_as_docker_reads_them(witness: Witness, extra: list[str]) -> None:
    witness.asked.clear()
    words = line(Submitted("busybox", "x", [], {}, False, "", [], False), "busybox")
    words[-2:-2] = extra
    found = parse_create(words, extra, {})
    assert witness.create(words).returncode == 0
    ((_, asked),) = witness.asked
    requests = asked["HostConfig"].get("DeviceRequests") or []
    asked["HostConfig"]["DeviceRequests"] = [
        {key: value for key, value in one.items() if value or key in ("Driver", "Count")} for one in requests
    ]
    for one in found.body["HostConfig"].get("DeviceRequests", []):
        one.setdefault("Count", 0)
    is_same(found, asked)
