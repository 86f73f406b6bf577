"""The API server fails, in each of its ways, at each moment of a job's life: the job's result is what it was to be."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from k8spilot.kube import watch_stream
from k8spilot.payload.binding import binder
from lab import pki
from lab.api import Lab
from lab.faulty import Fault
from lab.faulty_api import FaultyApi, faulty_api
from tests.engine.conftest import on_node
from tests.engine.faulty import FAULTS, JOB, SCRIPT, Place, ends_well, faulty_simulator, lost, running, so
from tests.engine.node import NodePod
from tests.engine.rings import eventually
from tests.runner.tiers import each_day
from tests.simulator.pod import payload_image
from tests.simulator.programs import Programs

FAULT_SECONDS = 0.7
NODE_FAULT_SECONDS = 1.5
ON_NODE = (
    "refuses connections",
    "hangs",
    "hangs in the middle of a body",
    "limits the rate",
    "is unavailable",
    "shows another certificate",
    "has forgotten",
    "loses answers",
    "takes requests late",
)
"""Faults that are tried on the node, too."""
MOST_REQUESTS = 14
"""Limit of the requests in a fault that lasts for FAULT_SECONDS, or NODE_FAULT_SECONDS: the pilot backs off.

A fault lasts longer on a busy machine, with more requests: where a right is taken away, a bind makes 8 requests in
0.7 s, 13 in 1.4 s and 17 in 2.1 s.
"""
MOMENTS = ("before the bind", "during the bind", "while it runs", "at its end", "at the unbind")


class Story:
    """One job, and an API server that fails at some moments of its life."""

    def __init__(self, place: Place, fault: str, moments: tuple[str, ...], seconds: float) -> None:
        self._place = place
        self._fault = fault
        self._moments = moments
        self._seconds = seconds
        self.most = 0.0
        """Requests in a fault, scaled to `seconds`; of several faults, the most."""

    @asynccontextmanager
    async def at(self, moment: str) -> AsyncIterator[None]:
        """The fault lasts while the context does, and a while at least."""
        if moment not in self._moments:
            yield
            return
        before = self._place.api.count()
        begun = time.monotonic()
        FAULTS[self._fault](self._place)
        pause = asyncio.create_task(asyncio.sleep(self._seconds))
        yield
        await pause
        lasted = time.monotonic() - begun
        requests = self._place.api.count() - before
        self.most = max(self.most, requests * self._seconds / lasted)
        self._place.is_well()

    async def tell(self) -> None:
        """Let a job live."""
        engine = self._place.engine
        await eventually(self._is_idle)
        restarts = (await engine.payload())["restartCount"]
        patches = self._place.api.count("patch")
        async with self.at("before the bind"):
            creating = asyncio.create_task(engine.create(engine.image("busybox"), "sh", "-c", SCRIPT, **JOB))
            await asyncio.sleep(0)
        await eventually(lambda: so(self._place.api.count("patch") > patches))
        async with self.at("during the bind"):
            pass
        job = await engine.start(await creating)
        await job.until_output(b"ready")
        container = (await engine.payload())["containerID"]
        assert (await engine.payload())["restartCount"] == restarts + 1
        async with self.at("while it runs"):
            pass
        async with self.at("at its end"):
            await job.kill("TERM")
            result = await job.result()
            assert (result.code, result.error) == (5, "")
        assert (await engine.payload())["containerID"] == container
        async with self.at("at the unbind"):
            await engine.remove(job.name)
        await eventually(self._is_idle)
        assert (await engine.shell(engine.image("busybox"), "exit 6", **JOB)).code == 6

    async def _is_idle(self) -> bool:
        status = await self._place.engine.payload()
        return "/k8spilot@" in status["imageID"] and "running" in status["state"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_an_api_server_that_fails_for_a_moment_costs_no_job_anything(
    place: Place, fault: str, moment: str
) -> None:
    story = Story(place, fault, (moment,), FAULT_SECONDS)
    await story.tell()
    assert story.most <= MOST_REQUESTS
    # Each container was started for a job or an unbind: none twice, for a job whose PATCH was tried again.
    starts = place.simulator.cluster.kubelet.starts
    assert len(starts) == len(set(starts))
    assert place.simulator.cluster.kubelet.back_offs == 0


@pytest.fixture(scope="module")
def node_api(lab: Lab) -> Iterator[FaultyApi]:
    """The lab's API server, behind a proxy that can fail."""
    with faulty_api(lab) as server:
        yield server


@pytest.fixture(scope="module")
def faulty_pod(lab: Lab, owner: str, node_api: FaultyApi) -> Iterator[NodePod]:
    """A pilot pod behind that."""
    pod = NodePod(lab, f"engine-{owner}-api", {**node_api.environment, "K8SPILOT_IDLE_AFTER_SECONDS": "1"})
    with pod.deployed():
        yield pod


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """An API server's certificate that nobody trusts."""
    pki.new_server(tmp_path)
    return tmp_path


@pytest.mark.node
@pytest.mark.parametrize("fault", each_day(("refuses connections", "is unavailable"), ON_NODE))
async def test_an_api_server_that_fails_at_every_moment_costs_no_job_on_the_node_anything(
    lab: Lab, faulty_pod: NodePod, node_api: FaultyApi, strangers: Path, fault: str
) -> None:
    async with on_node(faulty_pod) as engine:
        place = Place(engine, node_api, strangers, lab.settings.pki)
        try:
            story = Story(place, fault, MOMENTS, NODE_FAULT_SECONDS)
            await story.tell()
        finally:
            place.is_well()
    assert story.most <= MOST_REQUESTS


# --- an outage that is longer than a job's patience ---


PASSES = ("sees conflicts", "cuts watches", "has forgotten", "loses answers", "answers late", "takes requests late")
"""Faults that a bind survives, however long they last."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", [one for one in FAULTS if one not in PASSES])
async def test_a_job_that_cannot_be_bound_goes_back_to_the_queue(
    short: None, programs: Programs, tmp_path: Path, fault: str
) -> None:
    async with faulty_simulator(programs, tmp_path, patience_seconds=1.0) as place:
        engine, pod = place.simulator, place.simulator.cluster.pilot.pod
        FAULTS[fault](place)
        name = await engine.create(engine.image("busybox"), "true", **JOB)
        assert "cannot be changed now" in await lost(engine, name)
        assert pod.connectivity.fault
        await engine.remove(name)
        place.is_well()
        async with asyncio.timeout(40):  # by itself: the unbind is tried again, and the watch is
            await pod.connectivity.over()
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


@pytest.mark.slow
async def test_an_outage_that_begins_after_the_patch_gives_the_job_back(
    short: None, programs: Programs, tmp_path: Path
) -> None:
    async with faulty_simulator(programs, tmp_path, patience_seconds=2.5) as place:
        engine = place.simulator
        pulled = engine.cluster.kubelet.hold("registry.test:5000/debian")
        creating = asyncio.create_task(engine.create(engine.image("debian"), "true", **JOB))
        # The pilot knows that the pod is changed.
        await eventually(lambda: so(engine.cluster.pilot.pod.api.requests["patch", "200"] > 0))
        place.api.goes_away()
        name = await creating
        assert "has been unavailable" in await lost(engine, name)
        await engine.remove(name)
        pulled.set()
        place.is_well()
        assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


async def test_a_bind_that_ends_in_an_outage_is_no_reason_to_hold_the_job(
    short: None, programs: Programs, tmp_path: Path
) -> None:
    async with faulty_simulator(programs, tmp_path, bind_timeout_seconds=1.0) as place:
        engine = place.simulator
        place.api.goes_away()
        name = await engine.create(engine.image("busybox"), "true", **JOB)
        assert "cannot be changed now" in await lost(engine, name)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["refuses connections", "hangs in the middle of a body"])
async def test_a_status_that_nobody_tells_is_no_reason_to_hold_the_job(
    short: None, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(binder, "_CONFIRM_SECONDS", 0.5)
    async with faulty_simulator(programs, tmp_path, patience_seconds=0.5) as place:
        engine = place.simulator
        place.api.fails(Fault(verb="watch", silent=True))
        name = await engine.create(engine.image("busybox"), "true", **JOB)
        FAULTS[fault](place)
        started = await engine.ask("POST", f"/containers/{name}/start")
        assert started.status == 500
        assert "goes back to the queue" in await lost(engine, name)


async def test_a_job_that_is_killed_while_nobody_tells_the_status_ends_at_once(place: Place) -> None:
    engine = place.simulator
    place.api.fails(Fault(verb="watch", silent=True))
    name = await engine.create(engine.image("busybox"), "true", **JOB)
    place.api.goes_away()
    starting = asyncio.create_task(engine.ask("POST", f"/containers/{name}/start"))
    await asyncio.sleep(0.5)
    assert not starting.done()
    await engine.call("POST", f"/containers/{name}/kill", params={"signal": "TERM"})
    async with asyncio.timeout(10):  # the status would be waited for over a minute
        assert (await starting).status == 204
    state = (await engine.inspect(name))["State"]
    assert (state["Running"], state["ExitCode"]) == (False, 143)
    place.is_well()
    await engine.remove(name)
    assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


async def test_a_watch_that_has_died_does_not_hide_that_the_job_can_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder, "_CONFIRM_SECONDS", 0.5)
    monkeypatch.setattr(watch_stream, "SILENCE_SECONDS", 100.0)
    place.api.fails(Fault(verb="watch", silent=True))
    assert (await place.engine.shell(place.engine.image("busybox"), "exit 4", **JOB)).code == 4


@pytest.mark.slow
async def test_an_unbind_that_fails_is_tried_until_it_works(place: Place) -> None:
    engine = place.simulator
    await engine.shell(engine.image("busybox"), "exit 1", **JOB)
    place.api.goes_away()
    await asyncio.sleep(1.5)
    assert "/busybox:" in payload_image(engine.cluster.server.pod)
    place.is_well()
    await eventually(lambda: so("/k8spilot:" in payload_image(engine.cluster.server.pod)))


# --- patches that take effect late ---


async def test_a_patch_whose_answer_is_lost_binds_once(place: Place) -> None:
    engine = place.simulator
    place.api.fails(Fault(verb="patch", taken=True, hang=True, times=1))
    job = await running(engine)
    starts = list(engine.cluster.kubelet.starts)
    place.is_well()
    await ends_well(job)
    assert engine.cluster.kubelet.starts == starts
    assert len(starts) == 2  # idle at first, then the job's


async def test_a_patch_that_arrives_when_the_job_runs_does_not_restart_it(place: Place) -> None:
    engine = place.simulator
    place.api.fails(Fault(verb="patch", hang=True, times=1))
    job = await running(engine)
    starts = list(engine.cluster.kubelet.starts)
    patches = engine.cluster.server.requests["patch"]
    place.is_well()  # lets the first one through, long after the second
    await eventually(lambda: so(engine.cluster.server.requests["patch"] > patches))
    await ends_well(job)
    assert engine.cluster.kubelet.starts == starts


async def test_a_patch_of_a_job_that_was_removed_does_not_end_the_next_one(place: Place) -> None:
    engine = place.simulator
    place.api.fails(Fault(verb="patch", hang=True, times=1))
    removed = asyncio.create_task(engine.create(engine.image("debian"), "true", name="HTCJob1_0_slot1_PID1", **JOB))
    await eventually(lambda: so(place.api.count("patch") == 1))
    await engine.call("POST", "/containers/HTCJob1_0_slot1_PID1/kill", params={"signal": "TERM"})
    await engine.remove(await removed)
    job = await running(engine)
    starts = list(engine.cluster.kubelet.starts)
    place.is_well()
    await asyncio.sleep(0.3)
    await ends_well(job)
    assert engine.cluster.kubelet.starts == starts
