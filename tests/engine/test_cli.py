"""The docker command line, as HTCondor runs it."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.client import unique_name
from tests.engine.rings import SANDBOX, Engine

pytestmark = pytest.mark.skipif(shutil.which("docker") is None, reason="the docker CLI is not installed")

TEMPLATE = (
    'ContainerId="{{.Id}}"\nPid={{.State.Pid}}\nName="{{.Name}}"\nRunning={{.State.Running}}\n'
    'ExitCode={{.State.ExitCode}}\nStartedAt="{{.State.StartedAt}}"\nFinishedAt="{{.State.FinishedAt}}"\n'
    'DockerError={{json .State.Error}}\nOOMKilled="{{.State.OOMKilled}}"'
)
"""condor_starter's (docker-api.cpp)."""


@dataclass
class Ended:
    """A command's end."""

    code: int
    output: str
    errors: str


class Cli:
    """Runs docker against one engine."""

    def __init__(self, socket: Path, configuration: Path) -> None:
        self._environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}", "DOCKER_CONFIG": str(configuration)}

    async def __call__(self, *arguments: str) -> Ended:
        """Run it to its end."""
        pipe = asyncio.subprocess.PIPE
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            "docker", *arguments, env=self._environment, stdin=null, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
        assert process.returncode is not None
        return Ended(process.returncode, output.decode(), errors.decode())


@pytest.fixture
def docker(engine: Engine, tmp_path: Path) -> Cli:
    return Cli(engine.path, tmp_path)


async def test_the_life_of_a_job_in_the_starters_commands(engine: Engine, docker: Cli) -> None:
    name, image = unique_name(), engine.image("busybox")
    assert (await docker("images", "--format", "{{.Repository}}")).output == ""
    pulled = await docker("pull", "-q", image)
    assert (pulled.code, pulled.errors) == (0, "")
    created = await docker(
        *("create", "--cpu-shares=100", "--memory=128m", "--cap-drop=all", "--cap-add=SYS_PTRACE"),
        *("--security-opt", "no-new-privileges", "--init", "--name", name, "--label=org.htcondorproject=True"),
        *("--log-driver", "none", "-e", "A=1 2", "-e", "_CONDOR_X=x", "--volume", f"{SANDBOX}/slot:{SANDBOX}/slot"),
        *("--workdir", SANDBOX, "--user", "65534:65534", "--group-add", "65534", "--hostname", "alice-1.0-pilot"),
        *(image, "sh", "-c", 'echo "$A"; echo err >&2; exit 7'),
    )
    assert (created.code, created.errors) == (0, "")
    tagged = await docker("tag", image, "htcondor.org/alice_at_pool/busybox:latest")
    assert (tagged.code, tagged.errors) == (0, "")
    architecture = await docker("inspect", "--format", "{{.Architecture}}", image)
    assert (architecture.output, architecture.errors) == ("amd64\n", "")
    started = await docker("start", "-a", name)
    assert (started.code, started.output, started.errors) == (7, "1 2\n", "err\n")
    lines = (await docker("inspect", "--format", TEMPLATE, name)).output.splitlines()
    assert lines[2:5] == [f'Name="/{name}"', "Running=false", "ExitCode=7"]
    assert lines[7:] == ['DockerError=""', 'OOMKilled="false"']
    removed = await docker("rm", "-f", "-v", name)
    assert (removed.code, removed.output, removed.errors) == (0, f"{name}\n", "")


async def test_docker_kill_says_the_name(engine: Engine, docker: Cli) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "echo ready; exec sleep 60")
    job = await engine.start(name)
    await job.until_output(b"ready")
    killed = await docker("kill", "--signal", "15", name)
    assert (killed.code, killed.output, killed.errors) == (0, f"{name}\n", "")
    assert (await job.result()).code == 143


async def test_an_unknown_image_fails_create_with_one_line(engine: Engine, docker: Cli) -> None:
    image = engine.image("no-such-image")
    assert (await docker("pull", "-q", image)).code == 0
    created = await docker("create", "--name", unique_name(), image, "true")
    assert created.code != 0
    assert "manifest unknown" in created.errors
    assert created.errors.startswith("Error response from daemon: ")


async def test_an_unknown_name_is_no_such_object(docker: Cli) -> None:
    inspected = await docker("inspect", "nobody/knows:this")
    assert inspected.code == 1
    assert "No such object: nobody/knows:this" in inspected.errors


async def test_version_info_and_prune_work(docker: Cli) -> None:
    for command in (("version",), ("info",), ("container", "prune", "-f", "--filter=label=org.htcondorproject=True")):
        assert (await docker(*command)).code == 0, command
