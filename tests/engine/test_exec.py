"""Commands beside a job: docker exec, and with it condor_ssh_to_job."""

import asyncio
import socket

import pytest

from k8spilot.docker.hijack import frame
from tests.engine.client import VERSION, Failed
from tests.engine.rings import Engine, Simulated, eventually

LABELS = {"org.htcondorproject": "True"}


async def _job(engine: Engine, script: str = "echo ready; exec sleep 60", **options: object) -> str:
    job = await engine.begin_shell(engine.image("busybox"), script, **options)
    await job.until_output(b"ready")
    return job.name


async def test_a_command_runs_beside_the_job_and_has_streams_and_a_code_of_its_own(engine: Engine) -> None:
    name = await _job(engine)
    result = await engine.exec(name, "sh", "-c", "echo out; echo err >&2; exit 9")
    assert (result.code, result.stdout, result.stderr) == (9, b"out\n", b"err\n")
    assert (await engine.inspect(name))["State"]["Running"]


async def test_it_sees_what_the_job_sees(engine: Engine) -> None:
    name = await _job(engine, Env=["COLOUR=red", "SHAPE=round"], WorkingDir="/tmp")
    result = await engine.exec(name, "sh", "-c", "echo $COLOUR $SHAPE $PWD", Env=["SHAPE=flat"])
    assert result.stdout == b"red flat /tmp\n"
    assert "sleep 60" in await engine.processes()


async def test_it_reads_its_input_to_the_end(engine: Engine) -> None:
    name = await _job(engine)
    _, attached = await engine.begin_exec(name, "cat", stdin=True)
    sent = bytes(range(256)) * 4096
    reading = asyncio.ensure_future(attached.output())
    await attached.write(sent)
    attached.end_input()
    assert (await reading)[0] == sent


async def test_a_program_that_is_not_there_ends_with_127_and_says_so(engine: Engine) -> None:
    result = await engine.exec(await _job(engine), "/no/such")
    assert result.code == 127
    assert b"/no/such" in result.stderr


async def test_an_interactive_shell_has_a_terminal_of_the_container(engine: Engine) -> None:
    name = await _job(engine)
    identifier, attached = await engine.begin_exec(name, "sh", "-i", stdin=True, Tty=True)
    await engine.call("POST", f"/exec/{identifier}/resize", params={"h": "33", "w": "101"})
    await attached.write(b"stty size; test -t 0 && echo term''inal; echo $TERM; tty\n")
    assert b"33 101" in await attached.until(b"/dev/pts/")
    await attached.write(b"exit 5\n")
    await attached.reader.read()
    assert (await engine.call("GET", f"/exec/{identifier}/json")).json["ExitCode"] == 5


async def test_htcondors_shell_is_a_plain_one_where_the_image_has_no_bash(engine: Engine) -> None:
    name = await _job(engine, Labels=LABELS)
    _, attached = await engine.begin_exec(name, "/bin/bash", "-i", stdin=True, Tty=True)
    await attached.write(b"echo he''re\n")
    await attached.until(b"here")


async def test_nobody_elses_bash_is_replaced(node: Engine) -> None:
    assert (await node.exec(await _job(node), "/bin/bash", "-i")).code == 127


async def test_who_hangs_up_a_terminal_ends_what_runs_on_it(engine: Engine) -> None:
    name = await _job(engine)
    _, attached = await engine.begin_exec(name, "sh", "-c", "echo there; sleep 61", stdin=True, Tty=True)
    await attached.until(b"there")
    await attached.close()
    if engine.tells_of_hang_ups:
        await eventually(lambda: _gone(engine, "sleep 61"))


async def _gone(engine: Engine, command: str) -> bool:
    return command not in await engine.processes()


async def test_it_ends_with_the_job(engine: Engine) -> None:
    job = await engine.begin_shell(
        engine.image("busybox"), "echo ready; until test -e /tmp/begun; do sleep 0.05; done; exit 3"
    )
    await job.until_output(b"ready")
    session_script = "touch /tmp/begun; exec sleep 62"
    result, session = await asyncio.gather(job.result(), engine.exec(job.name, "sh", "-c", session_script))
    assert result.code == 3
    assert session.code == 137
    assert "sleep 62" not in await engine.processes()


async def test_many_at_once_do_not_mix(engine: Engine) -> None:
    name = await _job(engine)
    results = await asyncio.gather(*(engine.exec(name, "sh", "-c", f"echo {n}; exit {n}") for n in range(20)))
    assert [(one.code, one.stdout) for one in results] == [(n, b"%d\n" % n) for n in range(20)]


@pytest.mark.slow
async def test_more_than_payload_init_takes_is_an_error_and_no_harm(engine: Engine) -> None:
    script = "trap 'exit 4' TERM; echo ready; while :; do sleep 0.1; done"
    job = await engine.begin_shell(engine.image("busybox"), script)
    await job.until_output(b"ready")
    results = await asyncio.gather(*(engine.exec(job.name, "sleep", "2") for _ in range(40)))
    assert sorted({one.code for one in results}) == [0, 126]
    await job.kill("TERM")
    assert (await job.result()).code == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", [{"User": "root"}, {"Privileged": True}, {"Cmd": []}, {"Cmd": "true"}, {"Cmd": ["a\0b"]}], ids=str
)
async def test_what_it_cannot_be_is_refused(engine: Engine, option: dict[str, object]) -> None:
    with pytest.raises(Failed) as failed:
        await engine.exec(await _job(engine), "true", **option)
    assert failed.value.answer.status == 409


async def test_there_is_none_beside_a_job_that_does_not_run(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    for _ in ("before", "after"):
        with pytest.raises(Failed) as failed:
            await engine.exec(name, "true")
        assert failed.value.answer.status == 409
        assert "is not running" in failed.value.answer.message
        if (await engine.inspect(name))["State"]["Status"] != "exited":
            await (await engine.start(name)).result()
    assert (await engine.ask("GET", "/exec/abc/json")).status == 404


async def test_an_exec_is_started_once(engine: Engine) -> None:
    name = await _job(engine)
    identifier, attached = await engine.begin_exec(name, "true")
    await attached.output()
    assert (await engine.ask("POST", f"/exec/{identifier}/start", {})).status == 409


async def _python_client(simulator: Simulated, name: str, *command: str) -> socket.socket:
    """A connection of the Python package docker that has started a command, and has read nothing yet."""
    body = {"Cmd": list(command), "AttachStdout": True}
    identifier = (await simulator.call("POST", f"/containers/{name}/exec", body)).json["Id"]
    head = [f"POST {VERSION}/exec/{identifier}/start HTTP/1.1", "Host: docker", "Connection: Upgrade", "Upgrade: tcp"]
    head += ["User-Agent: docker-sdk-python/7.1.0", "Content-Type: application/json", "Content-Length: 2"]
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(simulator.path))
    client.sendall("\r\n".join([*head, "", "{}"]).encode())
    return client


async def test_the_python_client_gets_the_headers_before_any_output(simulator: Simulated) -> None:
    """The client would lose output that it reads together with them."""
    with await _python_client(simulator, await _job(simulator), "echo", "out") as client:
        await asyncio.sleep(0.5)  # busy with something else
        first = client.recv(65536)
        client.setblocking(False)
        rest = b""
        while chunk := await asyncio.get_running_loop().sock_recv(client, 65536):
            rest += chunk
    assert (first.startswith(b"HTTP/1.1 101 "), first.endswith(b"\r\n\r\n")) == (True, True)
    assert rest == frame(1, b"out\n")


async def test_a_python_client_that_goes_before_it_has_read_the_headers_is_no_fault(simulator: Simulated) -> None:
    """The fixture looks for faults in the log."""
    name = await _job(simulator)
    with await _python_client(simulator, name, "echo", "out"):
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.2)
    assert (await simulator.exec(name, "true")).code == 0


async def test_a_detached_one_runs_by_itself(engine: Engine) -> None:
    name = await _job(engine)
    body = {"Cmd": ["sh", "-c", "echo done > /tmp/mark"]}
    identifier = (await engine.call("POST", f"/containers/{name}/exec", body)).json["Id"]
    await engine.call("POST", f"/exec/{identifier}/start", {"Detach": True})

    async def ended() -> bool:
        return not (await engine.call("GET", f"/exec/{identifier}/json")).json["Running"]

    await eventually(ended)
    assert (await engine.exec(name, "cat", "/tmp/mark")).stdout == b"done\n"
