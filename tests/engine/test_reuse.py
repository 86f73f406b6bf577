"""One pod takes one job after another: without back-off, with few requests, and back to the idle image at last."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from k8spilot.common.errors import PilotError
from k8spilot.kube.own_pod import Sidecar
from k8spilot.payload.scrub.from_pilot import Leftovers
from k8spilot.settings.slots import BIND
from k8spilot.telemetry.slot_recorder import SlotRecorder
from tests.engine.rings import Engine, Simulated, eventually, simulated
from tests.simulator.pod import payload_image, payload_status
from tests.simulator.programs import Programs

JOBS = 10


@pytest.mark.slow
@pytest.mark.parametrize("images", [["busybox"], ["busybox", "debian"]], ids=["one image", "two images in turn"])
async def test_jobs_follow_one_another_without_back_off(engine: Engine, images: list[str]) -> None:
    before = (await engine.payload())["restartCount"]
    for number in range(JOBS):
        result = await engine.shell(engine.image(images[number % len(images)]), f"echo {number}; exit {number}")
        assert (result.code, result.stdout) == (number, f"{number}\n".encode())
    status = await engine.payload()
    assert "running" in status["state"]
    assert JOBS <= status["restartCount"] - before <= JOBS + 1  # and perhaps the idle image once


@pytest.mark.slow
async def test_twenty_jobs_make_at_most_three_requests_each_and_leave_references_unused(simulator: Simulated) -> None:
    requests = simulator.cluster.server.requests
    before = requests.total()
    for number in range(20):
        assert (await simulator.shell(simulator.image(["busybox", "debian"][number % 2]), "exit 1")).code == 1
    assert requests["patch"] == 20
    assert requests["event"] <= 2  # the first job of each image
    assert requests.total() - before <= 20 + requests["event"]
    starts = simulator.cluster.kubelet.starts
    assert len(set(starts)) == len(starts)
    assert simulator.cluster.kubelet.back_offs == 0


async def test_an_idle_pilot_asks_for_nothing(simulator: Simulated) -> None:
    await simulator.shell(simulator.image("busybox"), "exit 0")
    before = simulator.cluster.server.requests.copy()
    await asyncio.sleep(0.5)
    assert simulator.cluster.server.requests == before
    assert before["watch"] == 1
    assert before["list"] == 1


async def test_every_job_has_a_fresh_container(engine: Engine) -> None:
    seen = set()
    for _ in range(2):
        job = await engine.begin_shell(engine.image("busybox"), "echo ready; exec sleep 60")
        await job.until_output(b"ready")
        seen.add((await engine.payload())["containerID"])
        await engine.remove(job.name)
    assert len(seen) == 2


async def test_the_idle_image_comes_when_no_job_follows_and_the_next_bind_is_fresh(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        server = simulator.cluster.server
        idle = payload_image(server.pod)
        for _ in range(3):
            await simulator.shell(simulator.image("busybox"), "exit 0")
            await server.until(lambda pod: payload_image(pod).startswith(f"{idle}-"))
            await server.until(lambda pod: payload_status(pod)["image"] == payload_image(pod))
        assert (await simulator.shell(simulator.image("busybox"), "exit 9")).code == 9
        assert simulator.cluster.kubelet.back_offs == 0


@pytest.mark.slow
async def test_the_idle_image_comes_back_when_the_engine_has_died_after_a_job(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=60) as simulator:
        cluster = simulator.cluster
        server = cluster.server
        idle = payload_image(server.pod)
        await simulator.shell(simulator.image("busybox"), "exit 0")
        await cluster.stop_pilot()
        assert "/busybox:" in payload_image(server.pod)
        cluster.settings = replace(cluster.settings, idle_after_seconds=0.1)
        await cluster.start_pilot()
        await server.until(lambda pod: payload_image(pod).startswith(f"{idle}-"))


@pytest.mark.node
async def test_the_idle_image_comes_back_on_the_node(node: Engine) -> None:
    await node.shell(node.image("busybox"), "exit 0")

    async def is_idle() -> bool:
        status = await node.payload()
        return "k8spilot" in status["imageID"] and "running" in status["state"]

    await eventually(is_idle, seconds=30)
    assert (await node.shell(node.image("busybox"), "exit 9")).code == 9


async def test_a_job_that_follows_at_once_keeps_the_idle_image_away(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.3) as simulator:
        for _ in range(4):
            await simulator.shell(simulator.image("busybox"), "sleep 0.1")
        assert all("/busybox:" in one for one in simulator.cluster.kubelet.starts[1:])


async def test_a_long_job_is_not_disturbed_by_the_way_back_to_idle(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        await simulator.remove(await simulator.create(simulator.image("busybox"), "true"))
        assert (await simulator.shell(simulator.image("busybox"), "sleep 0.6; exit 8")).code == 8


async def test_a_reference_that_comes_back_would_back_off(simulator: Simulated) -> None:
    """The trap itself, so that the tests above prove something: the simulated kubelet has it, too."""
    cluster = simulator.cluster
    for image in ("busybox", "debian", "busybox"):
        await cluster.pilot.pod.set_image(Sidecar("payload", BIND), simulator.image(image), "0")
        await cluster.server.until(lambda pod: payload_status(pod)["image"] == payload_image(pod))
    assert payload_status(cluster.server.pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert cluster.kubelet.back_offs == 1
    cluster.kubelet.back_offs = 0
    assert (await simulator.shell(simulator.image("busybox"), "exit 1")).code == 1


@pytest.mark.slow
async def test_a_job_waits_for_the_end_of_the_last_one_whose_removal_nobody_waited_for(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Leftovers, "unlock", lambda _: time.sleep(1.0))
    job: dict[str, Any] = {"Labels": {"org.htcondorproject": "True"}}
    last = await simulator.begin_shell(simulator.image("busybox"), "echo ready; sleep 100", **job)
    await last.until_output(b"ready")
    removing = asyncio.create_task(simulator.remove(last.name))
    await asyncio.sleep(0.3)
    assert (await simulator.shell(simulator.image("busybox"), "exit 4", **job)).code == 4
    await removing


async def test_a_slot_that_cannot_be_cleaned_takes_no_job_for_a_while(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asyncio.Event()

    def fail(_: Leftovers) -> None:
        raise PilotError("what the last job left stays")

    async def away(_: SlotRecorder, _why: str, _seconds: float) -> None:
        told.set()

    monkeypatch.setattr(Leftovers, "clean", fail)
    monkeypatch.setattr(SlotRecorder, "away", away)
    name = await simulator.create(simulator.image("busybox"), "true", Labels={"org.htcondorproject": "True"})
    assert (await simulator.ask("POST", f"/containers/{name}/start")).status == 500
    async with asyncio.timeout(5):
        await told.wait()
    await simulator.remove(name)
    monkeypatch.undo()
    assert (await simulator.shell(simulator.image("busybox"), "exit 4")).code == 4
