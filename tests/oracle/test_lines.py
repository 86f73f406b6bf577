"""HTCondor's command lines: docker's client with dockerd, and docker-client with k8spilot, give HTCondor the same."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from k8spilot.condor.programs import words
from k8spilot.docker.command_lines.grammar import INSPECTION
from lab.api import Lab
from lab.dockerd import Dockerd
from tests.oracle.engines import Docker, unnamed, until
from tests.simulator.programs import Programs

NAME: Final = "HTCJob1_0_slot1_PID1"
"""Its starter is a process that is in every pod."""
ODD: Final = ("", " ", "a b", "'", '"', "$HOME", "*", "new\nline", "grün", "-x", "--rm", "a=b")


def line(image: str, *command: str, variables: Sequence[str] = ()) -> list[str]:
    """`docker create` as HTCondor writes it (docker-api.cpp, createContainer)."""
    return [
        *("create", "--cpu-shares=100", "--memory=128m", "--cap-drop=all", "--cap-add=SYS_PTRACE"),
        *("--security-opt", "no-new-privileges", "--init", "--name", NAME, "--label=org.htcondorproject=True"),
        *("--log-driver", "none", *(word for one in variables for word in ("-e", one)), "--workdir", "/tmp"),
        *("--user", "65534:65534", "--group-add", "65534", "--hostname", "alice-1.0-lab", image, *command),
    ]


def _life(docker: Docker, *command: str, variables: Sequence[str] = ()) -> Any:
    """All that HTCondor does for a job, and what it gets."""
    image = docker.image()
    steps: list[Any] = [docker("images", "--format", "{{.Repository}}:{{.Tag}} {{.ID}} {{.Size}}").code]
    steps.append(docker("pull", "-q", image).told)
    steps.append(docker(*line(image, *command, variables=variables)).told)
    steps.append(docker("tag", image, image).told)
    steps.append(docker("inspect", "--format", "{{.Architecture}}", image).told)
    steps.append(docker("start", "-a", NAME).exact)
    steps.append(docker("inspect", "--format", INSPECTION, NAME).told)
    steps.append(docker("rm", "-f", "-v", NAME).told)
    code, output, _ = docker("inspect", "--format", INSPECTION, NAME).told
    return [*steps, (code, output.strip())]


def _shell(script: str) -> Callable[[Docker], Any]:
    return lambda docker: _life(docker, "sh", "-c", script)


def _odd_words(docker: Docker) -> Any:
    variables = [f"V{number}={value}" for number, value in enumerate(ODD)]
    show = "".join(f'printf "[%s]" "$V{number}"; ' for number in range(len(ODD)))
    return _life(docker, "sh", "-c", f'printf "[%s]" "$@"; {show}', "sh", *ODD, variables=variables)


def _missing(docker: Docker) -> Any:
    """The words of the error are the engine's own."""
    docker("pull", "-q", docker.image())
    docker(*line(docker.image(), "/no/such/program"))
    return docker("start", "-a", NAME).code, docker("inspect", "--format", INSPECTION, NAME).told


def _while_it_runs(docker: Docker) -> Any:
    docker("pull", "-q", docker.image())
    docker(*line(docker.image(), "sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done"))
    client = docker.begin("start", "-a", NAME)
    assert client.line() == b"ready\n"
    steps: list[Any] = [docker(*words, NAME).told for words in (("pause",), ("unpause",))]
    steps.append(docker("inspect", "--format", INSPECTION, NAME).told)
    steps.append(docker("kill", "--signal", "15", NAME).told)
    return [*steps, client.end().exact, docker("kill", "--signal", "9", NAME).told]


def _signalled_client(docker: Docker) -> Any:
    docker("pull", "-q", docker.image())
    docker(
        *line(docker.image(), "sh", "-c", "trap 'echo asked; exit 85' USR2; echo ready; while :; do sleep 0.1; done")
    )
    client = docker.begin("start", "-a", NAME)
    assert client.line() == b"ready\n"
    client.process.send_signal(12)
    return client.end().exact


def _removed(docker: Docker) -> Any:
    docker("pull", "-q", docker.image())
    docker(*line(docker.image(), "sh", "-c", "echo ready; exec sleep 60"))
    client = docker.begin("start", "-a", NAME)
    assert client.line() == b"ready\n"
    return docker("rm", "-f", "-v", NAME).told, client.end().exact


def _killed_client(docker: Docker) -> Any:
    """A job whose client dies runs on with dockerd, and ends with k8spilot: what both have is an answer to rm."""
    docker("pull", "-q", docker.image())
    docker(*line(docker.image(), "sh", "-c", "echo ready; exec sleep 60"))
    client = docker.begin("start", "-a", NAME)
    assert client.line() == b"ready\n"
    client.process.kill()
    return client.end().code, docker("rm", "-f", "-v", NAME).told


def _nobody(docker: Docker) -> Any:
    commands = (
        ("start", "-a"),
        ("kill", "--signal", "9"),
        ("pause",),
        ("unpause",),
        ("rm", "-f", "-v"),
    )
    return [docker(*words, NAME).told for words in commands]


def _again(docker: Docker) -> Any:
    docker("pull", "-q", docker.image())
    docker(*line(docker.image(), "true"))
    return docker(*line(docker.image(), "true")).told


def _no_image(docker: Docker) -> Any:
    return docker(*line(docker.image("no-such-image"), "true")).told


def _prune(docker: Docker) -> Any:
    docker("pull", "-q", docker.image())
    docker(*line(docker.image(), "true"))
    done = docker("container", "prune", "-f", "--filter=label=org.htcondorproject=True")
    return done.code, done.told[1].splitlines()[:1], docker("rm", "-f", "-v", NAME).told


def _facts(docker: Docker) -> Any:
    done = docker("info")
    return done.code, b"Server Version: " in done.output, bool(done.output)


SCRIPTS: Final[dict[str, Callable[[Docker], Any]]] = {
    **{f"exit {code}": _shell(f"exit {code}") for code in (0, 1, 7, 126, 128, 137, 254)},
    **{f"signal {number}": _shell(f"ulimit -c 0; kill -{number} $$; sleep 60") for number in (9, 11, 15, 34)},
    "output": _shell("printf 'a\\0\\377'; printf b >&2"),
    "megabytes": _shell("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"),
    "output of a child": _shell("(sleep 30; echo late) & echo main; exit 4"),
    "odd words": _odd_words,
    "a program that is missing": _missing,
    "while it runs": _while_it_runs,
    "a signal to the client": _signalled_client,
    "removed while it runs": _removed,
    "a client that is killed": _killed_client,
    "what is not there": _nobody,
    "a name that is taken": _again,
    "an image that is not there": _no_image,
    "prune": _prune,
    "info": _facts,
}


@pytest.fixture(scope="module")
def two(
    lab: Lab, real: Dockerd, pilot_socket: Path, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Docker]:
    """The two engines, each with the client that HTCondor would run."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "docker-client").symlink_to(programs.docker_client)
    (folder / "docker-client.settings").write_text(words("", str(real.docker)))
    socket = pilot_socket.with_name(f"htcondor-{pilot_socket.name}")
    if not socket.is_socket():
        pytest.skip("HTCondor's socket of a pod is on the lab's own node only")
    return {
        "dockerd": Docker(real.docker, real.socket, lab.registry, NAME, folder / "docker"),
        "k8spilot": Docker(folder / "docker-client", socket, lab.registry, NAME, folder / "docker"),
    }


def _run(name: str, docker: Docker) -> Any:
    docker("rm", "-f", "-v", NAME)
    try:
        return unnamed(SCRIPTS[name](docker), {docker.registry: "REGISTRY"})
    finally:
        until(lambda: docker("rm", "-f", "-v", NAME).code == 0, "it is removed")


@pytest.mark.parametrize("name", SCRIPTS)
def test_htcondor_gets_the_same(two: dict[str, Docker], name: str) -> None:
    with ThreadPoolExecutor() as threads:
        begun = {engine: threads.submit(_run, name, docker) for engine, docker in two.items()}
        found = {engine: one.result() for engine, one in begun.items()}
    assert found["k8spilot"] == found["dockerd"]
