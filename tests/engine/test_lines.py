"""HTCondor's command lines, by its own door: docker-client sends them to the engine."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8spilot.condor.programs import words
from k8spilot.docker import containers
from k8spilot.docker.command_lines.grammar import INSPECTION
from tests.engine.client import SECONDS, Client, unique_name
from tests.engine.observed import changed, metrics, observed
from tests.engine.rings import Simulated, eventually
from tests.engine.withheld import WithheldReports
from tests.simulator.programs import Programs
from tests.unit.docker_lines import create


@dataclass(frozen=True)
class Ended:
    """End of a command, as HTCondor sees it."""

    code: int
    output: bytes
    errors: bytes


class Door:
    """docker-client, installed for one slot."""

    def __init__(self, folder: Path, program: Path, socket: Path) -> None:
        self.program = folder / "docker-client"
        self.program.symlink_to(program)
        (folder / "docker-client.settings").write_text(words("", "/nonexistent/docker"))
        self._environment = {"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{socket}"}

    async def begin(self, *line: str, **variables: str) -> asyncio.subprocess.Process:
        """Run a command."""
        pipe = subprocess.PIPE
        environment = {**self._environment, **variables}
        return await asyncio.create_subprocess_exec(
            self.program, *line, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def __call__(self, *line: str, given: bytes = b"", **variables: str) -> Ended:
        """Run a command to its end."""
        process = await self.begin(*line, **variables)
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate(given)
        assert process.returncode is not None
        return Ended(process.returncode, output, errors)

    async def created(self, image: str, *command: str, variables: Sequence[str] = ()) -> str:
        """Create a job's container, and return its name."""
        name = unique_name()
        done = await self(*create(*command, image=image, name=name, variables=variables))
        assert (done.code, done.errors, len(done.output)) == (0, b"", 65), done
        return name

    async def run(self, image: str, script: str, given: bytes = b"") -> Ended:
        """Run a shell script as a job, to its end."""
        name = await self.created(image, "sh", "-c", script)
        ended = await self("start", "-a", name, given=given)
        assert (await self("rm", "-f", "-v", name)).output.decode() == f"{name}\n"
        return ended


@pytest.fixture
def door(simulator: Simulated, programs: Programs, tmp_path: Path) -> Door:
    """The client of the simulated pod's slot."""
    return Door(tmp_path, programs.docker_client, simulator.cluster.settings.slots[0].htcondor_socket)


@pytest.fixture
def busybox(simulator: Simulated) -> str:
    return simulator.image("busybox")


async def test_a_job_runs_as_htcondor_runs_it(door: Door, busybox: str) -> None:
    assert await door("pull", "-q", busybox) == Ended(0, f"{busybox}\n".encode(), b"")
    name = await door.created(busybox, "sh", "-c", 'printf "a\\0\\377$A"; echo b >&2; exit 7', variables=["A=1 2"])
    assert (await door("inspect", "--format", "{{.Architecture}}", busybox)).output in (b"amd64\n", b"arm64\n")
    assert await door("start", "-a", name) == Ended(7, b"a\0\xff1 2", b"b\n")
    shown = await door("inspect", "--format", INSPECTION, name)
    lines = dict(line.split("=", 1) for line in shown.output.decode().splitlines())
    assert (lines["Name"], lines["Running"], lines["ExitCode"], lines["DockerError"]) == (
        f'"/{name}"',
        "false",
        "7",
        '""',
    )
    assert (lines["OOMKilled"], lines["Pid"], len(lines)) == ('"false"', "0", 9)
    assert await door("rm", "-f", "-v", name) == Ended(0, f"{name}\n".encode(), b"")
    assert await door("inspect", "--format", INSPECTION, name) == Ended(
        1, b"", f"Error: No such object: {name}\n".encode()
    )


async def test_arguments_and_variables_arrive_as_they_are(door: Door, busybox: str) -> None:
    odd = ["", " ", "'", '"', "new\nline", "grün", "-x", "--rm", b"\xff\xfe".decode(errors="surrogateescape")]
    values = [f"V{number}={value}" for number, value in enumerate(odd)]
    show = "".join(f'printf "[%s]" "$V{number}"; ' for number in range(len(odd)))
    name = await door.created(busybox, "sh", "-c", f'printf "[%s]" "$@"; {show}', "sh", *odd, variables=values)
    expected = "".join(f"[{one}]" for one in odd).encode(errors="surrogateescape")
    assert await door("start", "-a", name) == Ended(0, expected * 2, b"")


async def test_megabytes_go_in_and_out(door: Door, busybox: str) -> None:
    given = os.urandom(5_000_000)
    assert await door.run(busybox, "cat; echo end >&2", given) == Ended(0, given, b"end\n")


async def test_input_that_nobody_reads_does_not_keep_a_job(door: Door, busybox: str) -> None:
    assert (await door.run(busybox, "exec <&-; sleep 0.2; exit 3", b"x" * 1_000_000)).code == 3


async def test_a_job_with_a_megabyte_of_words_runs(door: Door, busybox: str) -> None:
    name = await door.created(busybox, "sh", "-c", "echo $# ${#12}", "sh", *["x" * 120_000] * 12)
    assert (await door("start", "-a", name)).output == b"12 120000\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [15, 9, 34])
async def test_a_job_is_killed(door: Door, busybox: str, number: int) -> None:
    name = await door.created(busybox, "sh", "-c", "echo ready; exec sleep 60")
    client = await door.begin("start", "-a", name)
    assert client.stdout is not None
    assert await client.stdout.readline() == b"ready\n"
    assert await door("kill", "--signal", str(number), name) == Ended(0, f"{name}\n".encode(), b"")
    assert await client.wait() == 128 + number
    assert (await door("kill", "--signal", "9", name)).code == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM, signal.SIGRTMIN])
async def test_a_signal_to_the_client_reaches_the_job(door: Door, busybox: str, number: int) -> None:
    name = await door.created(busybox, "sh", "-c", f"trap 'exit 5' {number:d}; echo ready; while :; do sleep 0.1; done")
    client = await door.begin("start", "-a", name)
    assert client.stdout is not None
    assert await client.stdout.readline() == b"ready\n"
    client.send_signal(number)
    assert await client.wait() == 5


async def test_a_job_is_paused_and_goes_on(door: Door, simulator: Simulated, busybox: str) -> None:
    name = await door.created(busybox, "sh", "-c", "echo ready; exec sleep 60")
    client = await door.begin("start", "-a", name)
    assert client.stdout is not None
    await client.stdout.readline()
    for command, state in (("pause", "paused"), ("unpause", "running")):
        assert (await door(command, name)).output.decode() == f"{name}\n"
        assert (await simulator.call("GET", f"/containers/{name}/json")).json["State"]["Status"] == state
    await door("rm", "-f", "-v", name)
    assert await client.wait() == 137


async def test_a_job_is_paused_as_soon_as_its_first_output_is_there(
    door: Door, simulator: Simulated, busybox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output can be faster than the report that the command runs."""
    monkeypatch.setattr(containers, "_REPORT_SECONDS", 60.0)
    reports = WithheldReports(monkeypatch)
    name = await door.created(busybox, "sh", "-c", "echo ready; exec sleep 60")
    client = await door.begin("start", "-a", name)
    assert client.stdout is not None
    await client.stdout.readline()
    pausing = asyncio.create_task(door("pause", name))
    await asyncio.sleep(0.2)
    reports.release()
    assert await pausing == Ended(0, f"{name}\n".encode(), b"")
    assert (await simulator.inspect(name))["State"]["Status"] == "paused"
    await door("rm", "-f", "-v", name)
    assert await client.wait() == 137


async def test_a_client_that_is_killed_ends_its_job(door: Door, simulator: Simulated, busybox: str) -> None:
    name = await door.created(busybox, "sh", "-c", "echo ready; exec sleep 60")
    client = await door.begin("start", "-a", name)
    assert client.stdout is not None
    await client.stdout.readline()
    client.kill()
    await client.wait()

    async def is_ended() -> bool:
        return await simulator.processes() == []

    await eventually(is_ended)
    assert (await door("inspect", "--format", INSPECTION, name)).code == 1  # the job goes back to the queue


async def test_a_client_of_create_that_is_killed_frees_the_slot(door: Door, simulator: Simulated, busybox: str) -> None:
    client = await door.begin(*create("true", image=busybox, name=unique_name()))
    await asyncio.sleep(0.02)
    with suppress(ProcessLookupError):
        client.kill()
    await client.wait()
    assert await door.run(busybox, "exit 4") == Ended(4, b"", b"")


async def test_a_container_that_was_never_started_has_not_ended_well(door: Door, busybox: str) -> None:
    name = await door.created(busybox, "true")
    looked = await door("inspect", "--format", INSPECTION, name)
    assert (looked.code, looked.output, b"goes back to the queue" in looked.errors) == (1, b"", True)


async def test_a_program_that_is_missing_is_told_of(door: Door, busybox: str) -> None:
    name = await door.created(busybox, "/no/such/program")
    ended = await door("start", "-a", name)
    assert (ended.code, b"/no/such/program" in ended.errors) == (127, True)


async def test_a_second_client_waits_for_the_same_end(door: Door, busybox: str) -> None:
    name = await door.created(busybox, "sh", "-c", "echo ready; read line; exit 6")
    client = await door.begin("start", "-a", name)
    assert client.stdout is not None
    await client.stdout.readline()
    others = [await door.begin("start", "-a", name) for _ in range(2)]
    others[0].kill()
    assert await others[0].wait() == -signal.SIGKILL
    await client.communicate(b"x\n")
    assert [client.returncode, await others[1].wait()] == [6, 6]
    assert await door("start", "-a", name) == Ended(6, b"", b"")


async def test_what_is_not_there_is_told_of(door: Door) -> None:
    name = unique_name()
    missing = f"Error response from daemon: No such container: {name}\n".encode()
    assert await door("start", "-a", name) == Ended(1, b"", missing)
    assert await door("kill", "--signal", "9", name) == Ended(1, b"", missing)
    assert await door("pause", name) == Ended(1, b"", missing)
    assert await door("rm", "-f", "-v", name) == Ended(0, b"", missing)
    image = "registry.example.org/none:1"
    assert await door("inspect", "--format", "{{.Architecture}}", image) == Ended(0, b"", b"")


async def test_an_image_that_is_not_there_fails_create_and_no_pull(door: Door, simulator: Simulated) -> None:
    image = simulator.image("no-such-image")
    assert await door("pull", "-q", image) == Ended(0, f"{image}\n".encode(), b"")
    done = await door(*create("true", image=image, name=unique_name()))
    assert (done.code, done.output, done.errors[:28]) == (1, b"", b"Error response from daemon: ")


async def test_htcondor_finds_an_engine_and_removes_what_is_left(door: Door, busybox: str) -> None:
    assert b"Server Version: " in (await door("info")).output
    name = await door.created(busybox, "true")
    removed = await door("container", "prune", "-f", "--filter=label=org.htcondorproject=True")
    assert (removed.code, removed.output.startswith(b"Deleted Containers:\n")) == (0, True)
    assert (await door("inspect", "--format", INSPECTION, name)).errors.startswith(b"Error: No such object")


REFUSED = {
    "another command": ["run", "x"],
    "an image that is an option": create("--entrypoint=/bin/sh", "x", image="--label=a=b"),
    "a name that is no job's": ["rm", "-f", "-v", "x"],
}


@pytest.mark.parametrize("name", REFUSED)
async def test_every_other_line_is_refused(door: Door, name: str) -> None:
    done = await door(*REFUSED[name])
    assert (done.code, done.output, done.errors.startswith(b"k8spilot: ")) == (1, b"", True)


async def test_a_job_whose_line_is_refused_is_counted_and_told(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.telemetry.service._SAME_SECONDS", 0.0)
    async with observed(programs) as (engine, address):
        before = await metrics(address)
        door = Door(tmp_path, programs.docker_client, engine.cluster.settings.slots[0].htcondor_socket)
        assert (await door(*REFUSED["an image that is an option"])).code == 1
        assert await changed(address, before) == {'k8spilot_holds_total{class="not_supported"}': 1}


@pytest.fixture
async def htcondor(simulator: Simulated) -> AsyncIterator[Client]:
    async with Client(simulator.cluster.settings.slots[0].htcondor_socket) as client:
        yield client


async def test_the_door_is_on_htcondors_socket_only(simulator: Simulated, htcondor: Client) -> None:
    refused = await simulator.ask("POST", "/htcondor/command", version="")
    assert (refused.status, refused.message) == (501, "k8spilot does not serve POST /htcondor/command")
    assert (await htcondor.ask("GET", "/htcondor/command", version="")).status == 501


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["-1", "2", "1" * 30, "x", "1"])
async def test_a_request_that_is_no_line_is_refused(htcondor: Client, extra: str) -> None:
    answer = await htcondor.ask("POST", "/htcondor/command", 7, version="", headers={"K8spilot-Extra-Words": extra})
    assert (answer.status, b"is not a command line" in answer.body) == (200, True)
