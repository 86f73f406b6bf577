"""Looks into a container: exec, statistics, ports."""

import json
import re
from typing import Any

from tests.oracle.engines import JOB, Docker, kind
from tests.oracle.scripts import script


@script
def exec_commands(docker: Docker) -> Any:
    with docker.running(options=[*JOB, "-e", "OF_JOB=yes", "--workdir", "/tmp"]):
        found: dict[str, Any] = {}
        for code in (0, 1, 126, 127, 128, 137, 255):
            found[f"exit {code}"] = docker("exec", docker.name, "sh", "-c", f"exit {code}").exact
        found["signal"] = docker("exec", docker.name, "sh", "-c", "kill -9 $$").exact
        found["streams"] = docker("exec", "-i", docker.name, "sh", "-c", "printf out; printf err >&2; exit 4").exact
        found["environment"] = docker(
            "exec", "-i", "-e", "A=1\n2", docker.name, "sh", "-c", 'echo "$A $OF_JOB"; pwd; id -u'
        ).exact
        found["options"] = docker("exec", "-w", "/bin", docker.name, "pwd").exact
        found["detached"] = docker("exec", "-d", docker.name, "sh", "-c", "touch /tmp/done").told
        return found


@script
def exec_input(docker: Docker) -> Any:
    with docker.running():
        found = [docker("exec", "-i", docker.name, "sh", "-c", "cat; exit 3", given=b"a\nb\0c").exact]
        found.append(docker("exec", docker.name, "cat", given=b"not delivered").exact)
        found.append(docker("exec", "-i", docker.name, "wc", "-c", given=b"x" * 3_000_000).exact)
        return found


@script
def exec_of_what_is_no_program(docker: Docker) -> Any:
    with docker.running():
        found = []
        for program in ("/no/such/program", "no-such-program", "/etc", "/bin/bash"):
            done = docker("exec", "-i", docker.name, program)
            found.append((done.code, kind((done.output + done.errors).decode())))
        return found


@script
def exec_on_a_terminal(docker: Docker) -> Any:
    with docker.running():
        show = "test -t 0 && test -t 1 && test -t 2 && echo terminal; echo ready; read line; echo got $line; exit 8"
        code, shown = docker.terminal("exec", "-ti", docker.name, "sh", "-c", show, given=b"x\n")
        return code, shown, docker("exec", "-ti", docker.name, "sh").told


@script
def exec_goes_with_its_container(docker: Docker) -> Any:
    with docker.running("trap 'exit 3' USR1; echo ready; while :; do sleep 0.05; done") as client:
        second = docker.begin("exec", docker.name, "sh", "-c", "echo in; exec sleep 60")
        seen = second.line()
        docker("kill", "--signal", "USR1", docker.name)
        return seen, client.end().exact, second.end().code


FIGURES = ("rss", "tx_bytes", "rx_bytes", "usage_in_usermode", "usage_in_kernelmode")


def _as_condor_reads(answer: bytes) -> dict[str, int | None]:
    """HTCondor looks for the first place in the whole answer where a figure follows its name (docker-api.cpp)."""
    found = {name: re.search(rb'"%b":(\d+)' % name.encode(), answer) for name in FIGURES}
    return {name: int(match[1]) if match else None for name, match in found.items()}


@script
def figures_as_condor_reads_them(docker: Docker) -> Any:
    work = (
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ready; "
    )
    with docker.running(f"{work} sleep 300"):
        answer = docker.raw(f"GET /containers/{docker.name}/stats?stream=0")
        head, _, body = answer.partition(b"\r\n\r\n")
        figures = _as_condor_reads(answer)
        used = (figures["usage_in_usermode"] or 0) + (figures["usage_in_kernelmode"] or 0)
        return (
            head.split(b"\r\n")[0],
            b"chunked" in head,
            sorted(set(json.loads(body)) & {"cpu_stats", "memory_stats", "precpu_stats", "read", "name", "id"}),
            10_000_000 < (figures["rss"] or 0) < 100_000_000,
            50_000_000 < used < 20_000_000_000,
        )


@script
def figures_of_what_does_not_run(docker: Docker) -> Any:
    docker.create("true")
    first = docker.raw(f"GET /containers/{docker.name}/stats?stream=0")
    docker("start", "-a", docker.name)
    second = docker.raw(f"GET /containers/{docker.name}/stats?stream=0")
    return [(answer.split()[1], _as_condor_reads(answer)["rss"] is not None) for answer in (first, second)]


@script
def docker_stats(docker: Docker) -> Any:
    with docker.running():
        done = docker("stats", "--no-stream", "--format", "{{.Name}} {{.PIDs}}", docker.name)
        return done.code, done.output.decode().split()[:1], done.errors


@script
def docker_stats_that_stream(docker: Docker) -> Any:
    with docker.running(), docker.asked(f"GET /containers/{docker.name}/stats?stream=1") as answer:
        while answer.readline().strip():
            pass  # the head
        return [json.loads(answer.readline())["name"] == f"/{docker.name}" for _ in range(2)]


@script
def ports_as_condor_reads_them(docker: Docker) -> Any:
    with docker.running(options=[*JOB, *docker.network, "-p", "8080", "-p", "9000/tcp"]):
        answer = docker.raw(f"GET /containers/{docker.name}/json")
        ports = json.loads(answer.partition(b"\r\n\r\n")[2])["NetworkSettings"]["Ports"]
        return {
            name: (len(rows) > 0, all(isinstance(row["HostPort"], str) and row["HostPort"].isdecimal() for row in rows))
            for name, rows in ports.items()
        }


@script
def json_as_condor_reads_it(docker: Docker) -> Any:
    with docker.running():
        head, _, body = docker.raw(f"GET /containers/{docker.name}/json").partition(b"\r\n\r\n")
        return b"chunked" in head, json.loads(body)["NetworkSettings"]["Ports"], sorted(json.loads(body)["State"])


@script
def top(docker: Docker) -> Any:
    with docker.running():
        done = docker("top", docker.name)
        return done.code, b"sleep 300" in done.output
