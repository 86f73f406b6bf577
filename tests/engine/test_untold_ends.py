"""Ends of containers of which the API server does not tell."""

import asyncio
from pathlib import Path

import pytest

from tests.engine.client import Job
from tests.engine.faulty import Place, faulty_simulator, running
from tests.engine.rings import Simulated
from tests.simulator.programs import Programs


async def test_out_of_memory_in_an_outage_is_told_when_the_outage_is_over(place: Place) -> None:
    job, engine = await _killed_for_memory(place)
    await asyncio.sleep(0.5)
    assert not job.waiting.done()
    place.is_well()
    assert ((await job.result()).code, (await engine.inspect(job.name))["State"]["OOMKilled"]) == (137, True)


async def test_out_of_memory_in_a_long_outage_is_told_by_the_kernels_count(
    short: None, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.payload.termination._STATUS_SECONDS", 0.3)
    async with faulty_simulator(programs, tmp_path, patience_seconds=0.5) as place:
        job, engine = await _killed_for_memory(place, counts=True)
        assert ((await job.result()).code, (await engine.inspect(job.name))["State"]["OOMKilled"]) == (137, True)


async def test_a_container_that_ends_in_a_long_outage_has_no_result(
    short: None, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.payload.termination._STATUS_SECONDS", 0.3)
    async with faulty_simulator(programs, tmp_path, patience_seconds=0.5) as place:
        job, _ = await _killed_for_memory(place)
        assert "goes back to the queue" in (await job.result()).error


async def test_a_job_that_is_removed_when_nobody_tells_how_it_ended_frees_the_slot_at_once(place: Place) -> None:
    job, engine = await _killed_for_memory(place)
    await asyncio.sleep(0.2)
    async with asyncio.timeout(10):  # HTCondor takes docker for hung when `docker rm` lasts for two minutes
        await engine.remove(job.name)
    await job.result()


async def _killed_for_memory(place: Place, *, counts: bool = False) -> tuple[Job, Simulated]:
    """A job whose container the kernel has just killed, while the API server is away."""
    engine = place.simulator
    job = await running(engine)
    container = engine.cluster.kubelet.container
    assert container is not None
    container.out_of_memory = True
    if counts:
        container.count_oom_kill()
    place.api.goes_away()
    container.kill_first()
    return job, engine
