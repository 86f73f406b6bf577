"""Output of containers: both streams, byte by byte; frames; logs."""

import hashlib
import socket
import struct
from pathlib import Path
from typing import Any

from tests.oracle.engines import JOB, SECONDS, Docker, until
from tests.oracle.scripts import script

LOGGED = [one for one in JOB if one not in ("--log-driver", "none")]
"""As HTCondor's, but that `docker logs` is to work."""

_FRAME = struct.Struct(">BxxxI")


@script
def both_streams_binary_and_no_newline_at_the_end(docker: Docker) -> Any:
    every = "".join(f"\\{number:03o}" for number in range(256))
    return docker.shell(f"printf '{every}'; printf 'error\\nno newline' >&2; printf end").exact


@script
def thirty_megabytes(docker: Docker) -> Any:
    done = docker.shell("seq 1 4000000; seq 1 100000 >&2; exit 3")
    return done.code, *((len(part), hashlib.sha256(part).hexdigest()) for part in (done.output, done.errors))


@script
def closed_stdout(docker: Docker) -> Any:
    return docker.shell("echo before; exec >&- 2>&-; sleep 0.3; exit 3").exact


@script
def frames(docker: Docker) -> Any:
    docker.create("sh", "-c", "echo 1; sleep 1; echo 2 >&2; sleep 1; echo 3; sleep 0.2; exit 9")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(docker.path))
        connection.sendall(
            f"POST /v1.41/containers/{docker.name}/attach?stderr=1&stdout=1&stream=1 HTTP/1.1\r\nHost: docker\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n".encode()
        )
        with connection.makefile("rb") as reader:
            head = [reader.readline()]
            while (line := reader.readline()) != b"\r\n":
                head.append(line.lower())
            docker("start", docker.name)
            found = []
            while header := reader.read(_FRAME.size):
                stream, length = _FRAME.unpack(header)
                found.append((stream, reader.read(length)))
    kept = sorted(line for line in head if not line.startswith((b"date", b"server", b"api-version")))
    return kept, found


@script
def attach_to_what_runs(docker: Docker) -> Any:
    with docker.running("trap 'echo later; exit 6' USR1; echo ready; while :; do sleep 0.05; done") as client:
        second = docker.begin("attach", "--no-stdin", docker.name)
        _wait_for_connection(second.process.pid)
        docker("kill", "--signal", "USR1", docker.name)
        return second.end().exact, client.end().exact


def _wait_for_connection(pid: int) -> None:
    until(lambda: _sockets(pid) >= 2, "the second client has connected twice")  # the attach, and the wait


def _sockets(pid: int) -> int:
    found = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += link.readlink().name.startswith("socket:")
        except OSError:
            continue
    return found


@script
def logs(docker: Docker) -> Any:
    docker.create("sh", "-c", "echo out; sleep 1; echo err >&2; exit 2", options=LOGGED)
    docker("start", "-a", docker.name)
    return docker("logs", docker.name).exact, docker("logs", "--tail", "1", docker.name).exact


@script
def logs_that_are_followed(docker: Docker) -> Any:
    with docker.running("trap 'echo later; exit' TERM; echo ready; while :; do sleep 0.05; done", options=LOGGED):
        followed = docker.begin("logs", "--follow", docker.name)
        followed.line()
        docker("kill", "--signal", "TERM", docker.name)
        return followed.end().exact


@script
def logs_of_a_job(docker: Docker) -> Any:
    docker.create("echo", "hello")
    docker("start", "-a", docker.name)
    return docker("logs", docker.name).told
