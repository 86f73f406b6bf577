"""A pull that goes on after its job was removed: the kubelet does nothing else for the pod then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8spilot.cli import status
from k8spilot.engine import startup
from k8spilot.payload import listeners
from k8spilot.payload.binding import abandoned_pull
from tests.engine.observed import events, get, metrics, observed, told
from tests.engine.rings import Simulated, simulated
from tests.engine.test_disturbances import _goes_back_to_the_queue
from tests.simulator.pod import payload_image
from tests.simulator.programs import Programs

JOB: dict[str, Any] = {"Labels": {"org.htcondorproject": "True"}}
SINCE = 'k8spilot_given_up_bind_timestamp_seconds{container="payload"}'


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits: an abandoned pull is reported soon, and metrics are made for every request."""
    monkeypatch.setattr("k8spilot.telemetry.service._SAME_SECONDS", 0.0)
    monkeypatch.setattr(abandoned_pull, "_SLOW_SECONDS", 0.3)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Closures and openings of the slot that the pool is told."""
    found: list[str] = []

    async def away(_: object, why: str, seconds: float = 0) -> None:
        found.append(f"away: {why}")

    async def back(_: object, why: str) -> None:
        found.append(f"back: {why}")

    monkeypatch.setattr(listeners.Fanout, "away", away)
    monkeypatch.setattr(listeners.Fanout, "back", back)
    return found


@asynccontextmanager
async def _pulled_for_nobody(engine: Simulated) -> AsyncIterator[None]:
    """The node pulls Debian's image, whose job was removed; the pull ends with the context."""
    debian, name = engine.image("debian"), "HTCJob1_0_slot1_PID1"
    pulled = engine.cluster.kubelet.hold(debian.rpartition(":")[0])
    creating = asyncio.create_task(
        engine.ask("POST", "/containers/create", {"Image": debian, "Cmd": ["true"], **JOB}, {"name": name})
    )
    await engine.cluster.server.until(lambda pod: payload_image(pod).startswith(debian))
    await asyncio.sleep(0.3)  # the kubelet has begun
    await engine.ask("POST", f"/containers/{name}/kill")
    assert (await creating).status == 201
    await engine.remove(name)
    try:
        yield
    finally:
        pulled.set()


async def test_a_pull_that_goes_on_after_its_job_closes_the_slot_until_it_ends(
    programs: Programs, said: list[str]
) -> None:
    async with observed(programs) as (engine, address):
        async with _pulled_for_nobody(engine):
            message = (await told(engine, "StillPulling"))["message"]
            assert message.startswith(
                f"The node still pulls image {engine.image('debian')}, or creates a container of it"
            )
            assert message.endswith("delete the pod, so that another takes its place.")
            code, text = await get(f"{address}/readyz")
            assert (code, "still pulls" in text) == (503, True)
            found = await asyncio.to_thread(status.query, str(engine.path))
            assert (found["fit"], "still pulls" in found["problems"][0]) == (False, True)
            assert (await metrics(address))[SINCE] > 1e9
            assert said == ["away: pull"]
            # A job that comes all the same waits, and is none the worse for it.
            running = asyncio.create_task(engine.shell(engine.image("busybox"), "exit 3", **JOB))
            await asyncio.sleep(0.5)
            assert not running.done()
        assert (await running).code == 3
        assert said == ["away: pull", "back: pull"]
        assert await get(f"{address}/readyz") == (200, "ok\n")
        assert SINCE not in await metrics(address)


@pytest.mark.slow
async def test_a_job_that_waits_for_such_a_pull_for_too_long_goes_back_to_the_queue(programs: Programs) -> None:
    async with simulated(programs, patience_seconds=0.8) as engine:
        async with _pulled_for_nobody(engine):
            for _ in range(2):
                name = await engine.create(engine.image("busybox"), "true", **JOB)
                await _goes_back_to_the_queue(engine, name, "the node still pulls image")
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


async def test_a_pull_that_ends_soon_after_its_job_is_told_nobody(
    programs: Programs, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned_pull, "_SLOW_SECONDS", 60.0)  # soon is sooner than that, however busy the machine is
    async with simulated(programs, patience_seconds=5.0) as engine:
        async with _pulled_for_nobody(engine):
            pass
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4
        assert (said, "StillPulling" in events(engine)) == ([], False)


async def test_the_end_of_such_a_pull_may_be_its_failure(programs: Programs) -> None:
    async with simulated(programs) as engine:
        async with _pulled_for_nobody(engine):
            engine.cluster.kubelet.fail_pulls("registry.test:5000/debian", "unexpected EOF")
            await told(engine, "StillPulling")
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


async def test_a_pull_that_goes_on_after_a_refusal_closes_the_slot_too(programs: Programs) -> None:
    """The kubelet tries again, and then the registry begins to send."""
    async with simulated(programs, idle_after_seconds=60.0, patience_seconds=0.8) as engine:
        kubelet, debian = engine.cluster.kubelet, engine.image("debian")
        name = debian.rpartition(":")[0]
        kubelet.fail_pulls(name, "manifest unknown")
        answer = await engine.ask("POST", "/containers/create", {"Image": debian, "Cmd": ["true"], **JOB})
        assert answer.status == 500
        await engine.cluster.server.until(lambda pod: "/k8spilot:" in payload_image(pod))
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


@pytest.mark.slow
async def test_an_engine_that_was_started_again_meanwhile_finds_such_a_pull(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "_PAYLOAD_SECONDS", 0.5)
    async with simulated(programs, patience_seconds=0.8) as engine:
        async with _pulled_for_nobody(engine):
            await engine.cluster.restart_pilot()
            name = await engine.create(engine.image("busybox"), "true", **JOB)
            await _goes_back_to_the_queue(engine, name, "the node still pulls image")
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


@pytest.mark.slow
async def test_a_bind_that_ends_in_a_pull_that_nobody_knows_of_gives_its_job_back(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned_pull.AbandonedPull, "begin", lambda _: None)
    async with simulated(programs, bind_timeout_seconds=2.0) as engine:
        async with _pulled_for_nobody(engine):
            name = await engine.create(engine.image("busybox"), "true", **JOB)
            await _goes_back_to_the_queue(engine, name, "the node has not begun")
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4
