"""Clients that hang up, stop to read, or ask oddly: no job waits for them, and none of them takes what is another's."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from tests.engine.client import VERSION, Job
from tests.engine.rings import Engine, Simulated, eventually
from tests.engine.test_logs import frames

JOB: dict[str, Any] = {"Labels": {"org.htcondorproject": "True"}}
CHATTER = "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"


async def _is_over(engine: Engine, job: Job) -> bool:
    answer = await engine.ask("GET", f"/containers/{job.name}/json")
    return answer.status == 500 or not answer.json["State"]["Running"]


async def test_a_job_that_writes_without_a_pause_ends_with_its_starters_client(simulator: Simulated) -> None:
    for _ in range(4):
        job = await simulator.begin_shell(simulator.image("busybox"), CHATTER, **JOB)
        for _ in range(20):
            await job.attached.frame()
        job.attached.abort()
        await eventually(lambda job=job: _is_over(simulator, job))  # type: ignore[misc]
        await simulator.remove(job.name)
        await job.waiting


async def test_somebody_who_looks_on_does_not_hide_that_the_starters_client_is_gone(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60", **JOB)
    await job.until_output(b"ready")
    onlooker = await simulator.attach(job.name)
    job.attached.abort()
    await eventually(lambda: _is_over(simulator, job))
    await onlooker.close()
    await simulator.remove(job.name)
    await job.waiting


async def test_a_terminal_is_hung_up_while_its_command_writes(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60", **JOB)
    await job.until_output(b"ready")
    for _ in range(4):
        identifier, attached = await simulator.begin_exec(job.name, "sh", "-c", CHATTER, stdin=True, Tty=True)
        await attached.reader.read(65536)
        attached.abort()
        await eventually(lambda identifier=identifier: _has_ended(simulator, identifier))  # type: ignore[misc]


async def _has_ended(engine: Engine, identifier: str) -> bool:
    return not (await engine.call("GET", f"/exec/{identifier}/json")).json["Running"]


async def test_a_terminal_is_hung_up_while_more_is_typed_than_is_read(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60", **JOB)
    await job.until_output(b"ready")
    script = "stty raw -echo; echo go; exec sleep 77"
    identifier, attached = await simulator.begin_exec(job.name, "sh", "-c", script, stdin=True, Tty=True)
    await attached.until(b"go")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await attached.write(b"x" * 2_000_000)
    attached.abort()
    await eventually(lambda: _has_ended(simulator, identifier))


async def test_a_follower_that_has_stopped_reading_keeps_no_job_from_ending(simulator: Simulated) -> None:
    script = "echo ready; sleep 0.5; head -c 8000000 /dev/zero"
    job = await simulator.begin_shell(simulator.image("busybox"), script, **JOB)
    first = await job.until_output(b"ready")  # and more, where the engine reads late
    followers = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for follower, request in zip(followers, (_logs(job.name), _attach(job.name)), strict=True):
        follower.connect(str(simulator.path))
        follower.sendall(request)
    async with asyncio.timeout(20):
        assert len(first + (await job.result()).stdout) == len(b"ready\n") + 8_000_000
    for follower in followers:
        follower.close()


def _logs(name: str) -> bytes:
    return f"GET {VERSION}/containers/{name}/logs?stdout=1&follow=1 HTTP/1.0\r\nHost: d\r\n\r\n".encode()


def _attach(name: str) -> bytes:
    head = f"POST {VERSION}/containers/{name}/attach?stdout=1&stream=1 HTTP/1.1"
    return f"{head}\r\nHost: d\r\nContent-Length: 0\r\n\r\n".encode()


async def test_a_slow_follower_misses_nothing_between_what_was_and_what_comes(simulator: Simulated) -> None:
    script = "seq 1 120000; echo ready >&2; sleep 0.5; seq 200000 210000; echo last"
    job = await simulator.begin_shell(simulator.image("busybox"), script, **JOB)
    rest = asyncio.ensure_future(job.attached.output())
    reader, writer = await asyncio.open_unix_connection(str(simulator.path), limit=1024)
    writer.write(_logs(job.name))
    await rest
    answer = await reader.read()
    writer.close()
    text = b"".join(data for _, data in frames(answer.partition(b"\r\n\r\n")[2]))
    assert text.endswith(b"".join(b"%d\n" % number for number in range(200000, 210001)) + b"last\n")


@pytest.mark.slow
async def test_wait_for_the_removal_ends_though_the_remover_hung_up(simulator: Simulated) -> None:
    job = await simulator.begin_stopping(simulator.image("busybox"), **JOB)
    removed = await simulator.begin_wait(job.name, "removed")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await simulator.remove(job.name)
    async with asyncio.timeout(30):
        await removed
        await job.waiting


async def test_who_comes_later_types_but_does_not_end_the_input(simulator: Simulated) -> None:
    name = await simulator.create(simulator.image("busybox"), "wc", "-c", OpenStdin=True, StdinOnce=True)
    first = await simulator.attach(name, stdin=True)
    await simulator.call("POST", f"/containers/{name}/start")
    later = await simulator.attach(name, stdin=True)
    await later.write(b"later")
    later.end_input()
    await asyncio.gather(*(first.write(b"x" * 100_000) for _ in range(10)))
    first.end_input()
    assert (await first.output())[0].strip() == b"1000005"


async def test_a_job_cannot_resume_itself(simulator: Simulated) -> None:
    script = "(while :; do kill -CONT $$; done) & i=0; echo ready; while :; do i=$((i+1)); done"
    job = await simulator.begin_shell(simulator.image("busybox"), script, **JOB)
    await job.until_output(b"ready")
    await simulator.call("POST", f"/containers/{job.name}/pause")
    stats = f"/containers/{job.name}/stats"

    async def stands_still() -> bool:
        both = []
        for _ in range(2):
            answer = await simulator.call("GET", stats, params={"stream": "0"})
            both.append(answer.json["cpu_stats"]["cpu_usage"]["total_usage"])
            await asyncio.sleep(0.3)
        return bool(both[0] == both[1])

    await eventually(stands_still)
    await simulator.remove(job.name)
    await job.waiting


async def test_filters_choose_or_are_refused(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true", **JOB)
    for filters, found in (
        ('{"name": ["other"]}', 0),
        (f'{{"name": ["{name[:8]}"]}}', 1),
        ('{"label": ["org.htcondorproject"]}', 1),
        ('{"label": {"org.htcondorproject=False": true}}', 0),
        ('{"status": ["created"]}', 1),
        ('{"status": ["running"]}', 0),
    ):
        answer = await engine.call("GET", "/containers/json", params={"all": "1", "filters": filters})
        assert len(answer.json) == found, filters
    for path, filters in (("/containers/json", '{"volume": ["x"]}'), ("/containers/json", "[]")):
        assert (await engine.ask("GET", path, params={"filters": filters})).status == 400
    assert (await engine.ask("POST", "/containers/prune", params={"filters": '{"until": ["24h"]}'})).status == 400
    assert len(await engine.containers()) == 1


@pytest.mark.parametrize(("seconds", "code"), [("0", 137), ("-1", 5), ("30", 5)])
async def test_stop_waits_as_long_as_it_is_told(engine: Engine, seconds: str, code: int) -> None:
    script = "trap 'sleep 0.3; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    job = await engine.begin_shell(engine.image("busybox"), script)
    await job.until_output(b"ready")
    await engine.call("POST", f"/containers/{job.name}/stop", params={"t": seconds})
    assert (await job.result()).code == code


async def test_stop_with_a_time_that_is_none_is_a_bad_request(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "echo ready; exec sleep 60")
    await job.until_output(b"ready")
    assert (await engine.ask("POST", f"/containers/{job.name}/stop", params={"t": "x"})).status == 400
