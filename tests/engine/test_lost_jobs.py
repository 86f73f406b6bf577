"""HTCondor is made to vacate a job whose container is lost, and need not ask for its result for 20 s."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from k8spilot.condor.ads.agent_link import RemoteStartdAd
from k8spilot.docker import store
from tests.engine.client import Client, Job
from tests.engine.rings import UNTIL_GO, Simulated, eventually

LABELS = {"org.htcondorproject": "True"}
NAME = "HTCJob1_0_slot1_PID1"
KILL = f"{UNTIL_GO}kill -KILL $PPID; sleep 60"


@pytest.fixture
async def door(simulator: Simulated) -> AsyncIterator[Client]:
    """HTCondor's socket."""
    async with Client(simulator.cluster.settings.slots[0].htcondor_socket) as client:
        yield client


@pytest.fixture
def vacated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests to HTCondor, which it accepts."""
    asked: list[str] = []

    async def request(_: RemoteStartdAd, request: dict[str, Any]) -> bool:
        asked.extend(request)
        return True

    monkeypatch.setattr(RemoteStartdAd, "_request", request)
    return asked


async def begin_killer(door: Client, simulator: Simulated) -> Job:
    """Start a job that kills payload-init, but not before its start has been reported."""
    job = await door.begin_shell(simulator.image("busybox"), KILL, name=NAME, Labels=LABELS)
    simulator.go.touch()
    return job


async def state(door: Client) -> dict[str, object]:
    answer = await door.ask("GET", f"/containers/{NAME}/json")
    return dict(answer.json["State"]) if answer.status == 200 else {}


async def test_a_lost_job_ends_by_htcondors_own_kill(vacated: list[str], door: Client, simulator: Simulated) -> None:
    job = await begin_killer(door, simulator)

    async def is_asked() -> bool:
        return "vacate" in vacated

    await eventually(is_asked)
    assert (await state(door))["Running"] is True
    async with asyncio.timeout(5):  # a stream of figures ends with the run
        await simulator.raw(f"GET /containers/{NAME}/stats HTTP/1.0\r\n\r\n".encode())
    await job.kill("USR1")  # a user's own, by way of docker's client
    assert not job.waiting.done()
    await job.kill("KILL")
    result = await job.result()
    assert (result.code, result.error) == (137, "")
    ended = await state(door)
    assert (ended["Running"], ended["ExitCode"], ended["OOMKilled"], ended["Error"]) == (False, 137, False, "")
    await door.remove(NAME)
    assert (await door.shell(simulator.image("debian"), "exit 3", Labels=LABELS)).code == 3


async def test_a_job_whose_image_is_not_for_this_site_ends_so_too(
    vacated: list[str], door: Client, simulator: Simulated
) -> None:
    simulator.cluster.kubelet.fail_pulls("registry.test:5000/debian", "403 Forbidden")
    name = await door.create(simulator.image("debian"), "true", name=NAME, Labels=LABELS)
    job = await door.start(name)
    assert not job.waiting.done()
    assert "vacate" in vacated
    await job.kill("KILL")
    assert (await job.result()).code == 137
    assert (await state(door))["ExitCode"] == 137


@pytest.mark.slow
@pytest.mark.parametrize("end", ["time", "removal", "client"])
async def test_a_job_that_htcondor_does_not_kill_is_lost_after_some_time(
    vacated: list[str], door: Client, simulator: Simulated, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    if end == "time":
        monkeypatch.setattr(store, "_VACATE_SECONDS", 0.3)
    job = await begin_killer(door, simulator)

    async def is_asked() -> bool:
        return "vacate" in vacated

    await eventually(is_asked)
    async with asyncio.timeout(5):
        if end == "removal":
            await door.remove(NAME)
        if end == "client":
            job.attached.abort()
            await job.waiting
        else:
            assert "no result" in (await job.result()).error
    if end != "removal":
        assert await state(door) == {}
        await door.remove(NAME)
    assert (await door.shell(simulator.image("debian"), "exit 3", Labels=LABELS)).code == 3


async def test_a_job_that_has_gone_meanwhile_is_not_vacated_late(
    door: Client, simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy node the request takes seconds, and the next job may have the slot by then."""
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def request(_: RemoteStartdAd, request: dict[str, Any]) -> object:
        if request.get("vacate") != "1.0":
            return None
        asked.set()
        try:
            return await asyncio.Event().wait()
        finally:
            dropped.set()

    monkeypatch.setattr(RemoteStartdAd, "_request", request)
    await begin_killer(door, simulator)
    async with asyncio.timeout(10):
        await asked.wait()
        await door.remove(NAME)
        await dropped.wait()


async def test_where_htcondor_cannot_be_asked_the_job_is_lost_at_once(door: Client, simulator: Simulated) -> None:
    job = await begin_killer(door, simulator)
    async with asyncio.timeout(5):
        assert "no result" in (await job.result()).error
    assert await state(door) == {}
