"""Ends of jobs, by themselves and from outside."""

import struct

import pytest

from tests.engine.rings import SANDBOX, Engine


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 255])
async def test_exit_code_is_the_jobs_own(engine: Engine, code: int) -> None:
    result = await engine.shell(engine.image("busybox"), f"exit {code}")
    assert (result.code, result.error) == (code, "")


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR1", 10)])
async def test_death_by_signal_is_128_and_its_number(engine: Engine, name: str, number: int) -> None:
    result = await engine.shell(engine.image("busybox"), f"ulimit -c 0; kill -{name} $$; sleep 60")
    assert result.code == 128 + number


@pytest.mark.slow
@pytest.mark.parametrize(("signal", "number"), [("TERM", 15), ("SIGKILL", 9), ("1", 1)])
async def test_kill_sends_signals_by_name_and_number(engine: Engine, signal: str, number: int) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "echo ready; exec sleep 60")
    await job.until_output(b"ready")
    await job.kill(signal)
    assert (await job.result()).code == 128 + number


async def test_a_job_may_handle_its_signal(engine: Engine) -> None:
    script = "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    job = await engine.begin_shell(engine.image("busybox"), script)
    await job.until_output(b"ready")
    await job.kill("TERM")
    result = await job.result()
    assert (result.code, result.stdout) == (3, b"saved\n")


async def test_a_job_that_ignores_sigterm_goes_on_until_sigkill(engine: Engine) -> None:
    script = "trap '' TERM; echo ready; while :; do echo still; sleep 0.05; done"
    job = await engine.begin_shell(engine.image("busybox"), script)
    await job.until_output(b"ready")
    await job.kill("TERM")
    await job.until_output(b"still\nstill\nstill\n")
    assert (await engine.inspect(job.name))["State"]["Running"]
    await job.kill("KILL")
    assert (await job.result()).code == 137


async def test_kill_of_an_ended_container_is_refused_at_once(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "exit 4")
    await job.result()
    answer = await engine.ask("POST", f"/containers/{job.name}/kill", params={"signal": "9"})
    assert answer.status == 409
    assert "not running" in answer.message
    assert (await engine.inspect(job.name))["State"]["ExitCode"] == 4


async def test_kill_of_a_created_container_is_refused(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    assert (await engine.ask("POST", f"/containers/{name}/kill")).status == 409


async def test_kill_with_what_is_no_signal_is_refused(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "exec sleep 60")
    answer = await engine.ask("POST", f"/containers/{job.name}/kill", params={"signal": "NOPE"})
    assert answer.status in (400, 409)
    assert "NOPE" in answer.message
    assert (await engine.inspect(job.name))["State"]["Running"]


async def test_an_unknown_executable_is_127_with_a_line_on_stderr(engine: Engine) -> None:
    result = await engine.run(engine.image("busybox"), "/no/such/program", "argument")
    assert result.code == 127
    assert result.stderr.count(b"\n") == 1
    assert b"/no/such/program" in result.stderr
    assert b"No such file" in result.stderr


@pytest.mark.parametrize("program", ["/proc/version", "/etc"])
async def test_what_cannot_be_executed_is_126_with_a_line_on_stderr(engine: Engine, program: str) -> None:
    result = await engine.run(engine.image("busybox"), program)
    assert result.code == 126
    assert program.encode() in result.stderr


async def test_a_script_without_a_first_line_is_given_to_the_shell(engine: Engine) -> None:
    script = f"{SANDBOX}/script-without-interpreter"
    made = await engine.shell(engine.image("busybox"), f"echo 'exit $1' > {script}; chmod 755 {script}")
    assert made.code == 0
    assert (await engine.run(engine.image("busybox"), script, "9")).code == 9


NO_INTERPRETER = "its interpreter '/opt/absent/python' is not in the image"
CRLF = "its lines end with CR LF, as on Windows, so that its interpreter is '/bin/sh\\r', which does not exist"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_line", "words"),
    [("#! /opt/absent/python -u", NO_INTERPRETER), ("#!/bin/sh\\r", CRLF), ("#!/bin/sh -e\\r", "")],
)
async def test_a_script_whose_interpreter_is_missing_says_which(engine: Engine, first_line: str, words: str) -> None:
    script = f"{SANDBOX}/script-of-another"
    made = await engine.shell(
        engine.image("busybox"), f"printf '{first_line}\\nexit 3\\n' > {script}; chmod 755 {script}"
    )
    assert made.code == 0
    for environment, program in ([], script), ([f"PATH=/bin:{SANDBOX}"], "script-of-another"):
        result = await engine.run(engine.image("busybox"), program, Env=environment)
        if words:
            assert (result.code, result.stderr.count(b"\n")) == (127, 1)
            assert f"cannot run '{program}': {words}".encode() in result.stderr
        else:
            assert b"k8spilot" not in result.stderr


async def test_a_program_whose_loader_is_missing_says_which(engine: Engine) -> None:
    """The program was linked with another C library than the image's."""
    loader = b"/lib/ld-of-another.so.1\0"
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    program = header + struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(loader), len(loader), 1) + loader
    text = "".join(f"\\{byte:03o}" for byte in program)
    path = f"{SANDBOX}/program-of-another"
    assert (await engine.shell(engine.image("busybox"), f"printf '{text}' > {path}; chmod 755 {path}")).code == 0
    result = await engine.run(engine.image("busybox"), path)
    assert result.code == 127
    assert (
        result.stderr
        == f"k8spilot: cannot run '{path}': its interpreter '{loader[:-1].decode()}' is not in the image\n".encode()
    )


async def test_a_static_program_alone_in_its_image_runs(engine: Engine) -> None:
    result = await engine.run(engine.image("hello"), "/hello", "7", "x y")
    assert result.code == 7
    assert b"hello from an image" in result.stdout
    assert b"argument 2: x y\n" in result.stdout


async def test_inspect_tells_the_life_of_a_container(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "echo ready; exec sleep 60")
    created = (await engine.inspect(name))["State"]
    job = await engine.start(name)
    await job.until_output(b"ready")
    running = (await engine.inspect(name))["State"]
    await job.kill("KILL")
    await job.result()
    ended = (await engine.inspect(name))["State"]
    assert [one["Status"] for one in (created, running, ended)] == ["created", "running", "exited"]
    assert [one["Running"] for one in (created, running, ended)] == [False, True, False]
    assert created["StartedAt"] == "0001-01-01T00:00:00Z"
    assert running["Pid"] > 0
    assert ended["Pid"] == 0
    assert ended["ExitCode"] == 137
    assert ended["OOMKilled"] is False
    assert ended["Error"] == ""
    assert ended["StartedAt"] <= ended["FinishedAt"]


async def test_the_result_stays_until_the_container_is_removed(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "exit 6")
    await job.result()
    again = await engine.begin_wait(job.name, "")
    assert (await again).json["StatusCode"] == 6
    assert (await engine.inspect(job.name))["State"]["ExitCode"] == 6
    await engine.remove(job.name)
    assert (await engine.ask("GET", f"/containers/{job.name}/json")).status == 404


async def test_started_twice_runs_once(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "echo once")
    assert (await engine.ask("POST", f"/containers/{job.name}/start")).status == 304
    assert (await job.result()).stdout == b"once\n"
    assert (await engine.ask("POST", f"/containers/{job.name}/start")).status == 304
