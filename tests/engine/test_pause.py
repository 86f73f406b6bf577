"""Paused jobs: condor_suspend and condor_continue."""

import asyncio
from asyncio import TaskGroup
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from k8spilot.docker import containers
from tests.engine.rings import Engine, Simulated, eventually
from tests.engine.withheld import WithheldReports

COUNTER = (
    "trap 'echo caught; exit 3' TERM; echo ready; i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.01; done"
)
CROWD = "for i in 1 2 3; do setsid sh -c 'while :; do sleep 0.01; done' & done; " + COUNTER


@pytest.mark.slow
async def test_no_process_of_a_paused_job_makes_progress_and_all_go_on_afterwards(engine: Engine) -> None:
    says = "while :; do echo $0; sleep 0.05; done"
    others = "".join(f"setsid sh -c '{says}' {name} & " for name in ("one", "two", "three"))
    job = await engine.begin_shell(
        engine.image("busybox"), f"{others} trap 'exit 3' TERM; {says.replace('$0', 'four')}"
    )

    async def said(since: int = 0) -> bytes:
        return (await engine.call("GET", f"/containers/{job.name}/logs", params={"stdout": "1"})).body[since:]

    async def all_say_something(since: int) -> bool:
        text = await said(since)
        return all(name in text for name in (b"one", b"two", b"three", b"four"))

    await eventually(lambda: all_say_something(0))
    await engine.call("POST", f"/containers/{job.name}/pause")
    state = (await engine.inspect(job.name))["State"]
    assert (state["Status"], state["Paused"], state["Running"]) == ("paused", True, True)
    before = b""
    while (now := await said()) != before:  # what is on its way to a processor may wait for it on a loaded machine
        before = now
        await asyncio.sleep(2)
    await asyncio.sleep(2)
    assert await said() == before
    await engine.call("POST", f"/containers/{job.name}/unpause")
    assert not (await engine.inspect(job.name))["State"]["Paused"]
    await eventually(lambda: all_say_something(len(before)))
    await job.kill("TERM")
    assert (await job.result()).code == 3


async def test_a_paused_job_can_be_killed(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), CROWD)
    await job.until_output(b"ready")
    await engine.call("POST", f"/containers/{job.name}/pause")
    await job.kill("9")
    assert (await job.result()).code == 137
    assert await engine.processes() == []


async def test_a_paused_job_can_be_removed(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), CROWD)
    await job.until_output(b"ready")
    await engine.call("POST", f"/containers/{job.name}/pause")
    await engine.remove(job.name)
    assert (await engine.run(engine.image("busybox"), "true")).code == 0


async def test_a_signal_waits_until_a_paused_job_goes_on(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), COUNTER)
    await job.until_output(b"ready")
    await engine.call("POST", f"/containers/{job.name}/pause")
    await job.kill("TERM")
    await asyncio.sleep(0.3)
    assert (await engine.inspect(job.name))["State"]["Running"]
    await engine.call("POST", f"/containers/{job.name}/unpause")
    assert (await job.result()).code == 3


async def test_pausing_has_its_order(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sleep", "60")
    pause, unpause = f"/containers/{name}/pause", f"/containers/{name}/unpause"
    assert (await engine.ask("POST", pause)).status == 409
    job = await engine.start(name)
    assert (await engine.ask("POST", unpause)).status == 409
    await engine.call("POST", pause)
    assert (await engine.ask("POST", pause)).status == 409
    assert (await engine.ask("POST", f"/containers/{name}/exec", {"Cmd": ["true"]})).status == 409
    await job.kill("KILL")
    await job.result()
    assert (await engine.ask("POST", pause)).status == 409


@asynccontextmanager
async def _before_the_report(
    engine: Simulated, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, WithheldReports]]:
    """Yield a container whose command has written its first output before the report that it runs."""
    reports = WithheldReports(monkeypatch)
    async with TaskGroup() as tasks:
        name = await engine.create(engine.image("busybox"), "sh", "-c", COUNTER)
        attached = await engine.attach(name)
        starting = tasks.create_task(engine.call("POST", f"/containers/{name}/start"))
        await attached.until(b"ready")
        yield name, reports
        reports.release()
        await starting


@pytest.mark.parametrize("path", ["pause", "exec"])
async def test_a_command_whose_output_is_faster_than_the_report_that_it_runs_can_be_paused_and_joined(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(containers, "_REPORT_SECONDS", 60.0)
    async with _before_the_report(simulator, monkeypatch) as (name, reports), TaskGroup() as tasks:
        answer = tasks.create_task(simulator.ask("POST", f"/containers/{name}/{path}", {"Cmd": ["true"]}))
        await asyncio.sleep(0.2)
        assert not answer.done()
        reports.release()
        assert (await answer).status in {201, 204}


async def test_a_job_that_withholds_the_report_that_it_runs_delays_no_pause_for_long(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_REPORT_SECONDS", 0.1)
    async with _before_the_report(simulator, monkeypatch) as (name, _):
        answer = await simulator.ask("POST", f"/containers/{name}/pause")
        assert (answer.status, "only a running job can be paused" in answer.json["message"]) == (409, True)


async def test_the_next_job_is_not_paused(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), COUNTER)
    await job.until_output(b"ready")
    await simulator.call("POST", f"/containers/{job.name}/pause")
    await simulator.remove(job.name)
    name = await simulator.create(simulator.image("busybox"), "true")
    assert not (await simulator.inspect(name))["State"]["Paused"]
