"""Repeated ends of jobs: by a job that harms its own container, and by a slot that fails all jobs."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from k8spilot.cli import status
from k8spilot.condor.ads.agent_link import RemoteStartdAd
from k8spilot.docker.container import Container
from k8spilot.docker.job_ends import JobEnds
from k8spilot.payload import usage
from k8spilot.payload.binding import binder
from k8spilot.payload.scrub.from_pilot import PilotScrubber
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.terminals import Terminals
from tests.engine.client import Job
from tests.engine.rings import UNTIL_GO, Simulated, eventually, simulated
from tests.simulator.programs import Programs

_IMAGES = itertools.cycle(["busybox", "debian"])
KILL = f"{UNTIL_GO}kill -KILL -1"
HANG_UP = f"trap '' HUP; {UNTIL_GO}kill -HUP $PPID; sleep 60"


@pytest.fixture(autouse=True)
def node_with_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of this machine may kill a process of somebody else for memory, and no job is held for that time."""
    monkeypatch.setattr("k8spilot.payload.termination.read_node_oom_kills", lambda: 0)


def of(owner: str, job: str = "12.0") -> dict[str, Any]:
    """As HTCondor asks for a job of `owner`."""
    labels = {"org.htcondorproject": "True"}
    return {"Labels": labels, "Hostname": f"{owner}-{job}-site.pilot-7"}


async def begin(engine: Simulated, script: str, owner: str, job: str = "12.0") -> Job:
    """Start a job in another image than the last one's, as the idle image would be between real ones."""
    return await engine.begin_shell(engine.image(next(_IMAGES)), script, name=name_of(job), **of(owner, job))


def name_of(job: str) -> str:
    """HTCondor's name of a job's container."""
    return f"HTCJob{job.replace('.', '_')}_slot1_PID1"


async def fate(engine: Simulated, script: str, owner: str, job: str = "12.0") -> str:
    """The reason for which HTCondor holds the job; empty if it goes back to the queue."""
    run = await begin(engine, script, owner, job)
    engine.go.touch()
    await run.result()
    engine.go.unlink()
    answer = await engine.ask("GET", f"/containers/{run.name}/json")
    state = answer.json["State"] if answer.status == 200 else None
    await engine.remove(run.name)
    if state is None:
        return ""
    assert (state["Running"], state["OOMKilled"]) == (False, False)
    return str(state["Error"])


async def test_a_job_that_kills_its_payload_init_again_is_held_and_no_other(simulator: Simulated) -> None:
    assert await fate(simulator, KILL, "mallory") == ""
    assert "first process by signal 9" in await fate(simulator, KILL, "mallory")
    assert await fate(simulator, KILL, "mallory", "13.0") == ""
    assert (await simulator.shell(simulator.image("busybox"), "exit 3", **of("bob", "12.0"))).code == 3
    found = await asyncio.to_thread(status.query, str(simulator.cluster.settings.socket))
    assert "JobRefused" in {one["what"] for one in found["faults"]}


@pytest.fixture
def leashed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give payload-init a leash, as a pilot that is not root does."""
    terminals, clean = Terminals(), PilotScrubber.clean
    terminals.open()

    async def clean_and_leash(self: PilotScrubber, channel: Channel) -> None:
        await clean(self, channel)
        if not channel.leash.is_attached:
            channel.offer_leash(terminals.take())
            assert await channel.leash.answer == 0

    monkeypatch.setattr(PilotScrubber, "clean", clean_and_leash)
    yield
    terminals.close()


@pytest.mark.usefixtures("leashed")
async def test_a_job_that_hangs_up_on_its_payload_init_again_is_held_too(simulator: Simulated) -> None:
    assert await fate(simulator, HANG_UP, "mallory") == ""
    assert "again ended its own container's first process by signal 1;" in await fate(simulator, HANG_UP, "mallory")
    assert (await simulator.shell(simulator.image("busybox"), "exit 3", **of("bob"))).code == 3


async def test_the_jobs_of_a_user_that_kill_theirs_one_after_another_are_held(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.model.killed_containers.IN_A_ROW", 1)
    assert await fate(simulator, KILL, "mallory", "12.0") == ""
    assert "first process by signal 9, as the last" in await fate(simulator, KILL, "mallory", "12.1")
    await ends(simulator, "exit 3", "mallory")
    assert await fate(simulator, KILL, "mallory", "12.2") == ""


@pytest.mark.slow
async def test_where_jobs_of_others_lose_theirs_too_the_node_may_be_the_cause(simulator: Simulated) -> None:
    assert await fate(simulator, KILL, "alice", "1.0") == ""
    assert [await fate(simulator, KILL, "bob", "2.0") for _ in range(3)] == ["", "", ""]
    assert "first process by signal 9" in await fate(simulator, KILL, "bob", "2.0")


@pytest.mark.slow
async def test_a_job_that_somebody_else_ends_is_never_held(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: by HTCondor; while the node has no memory; while the pod is deleted."""
    for _ in range(2):
        job = await simulator.begin_stopping(simulator.image(next(_IMAGES)), name=name_of("12.0"), **of("bob"))
        await job.kill("KILL")
        assert (await job.result()).error
        await simulator.remove(job.name)
    numbers = iter(range(1000))
    with monkeypatch.context() as short_of_memory:
        short_of_memory.setattr("k8spilot.payload.termination.read_node_oom_kills", lambda: next(numbers))
        assert [await fate(simulator, KILL, "bob") for _ in range(3)] == [""] * 3
    assert usage.read_node_oom_kills() is not None
    assert await fate(simulator, KILL, "bob") == ""


async def ends(engine: Simulated, script: str, owner: str) -> None:
    """Run a job to its end."""
    job = await begin(engine, script, owner)
    await job.result()
    await engine.remove(job.name)


async def slot_problems(engine: Simulated) -> list[str]:
    found = await asyncio.to_thread(status.query, str(engine.cluster.settings.socket))
    return [one for one in found["problems"] if "users failed" in one]


async def test_a_slot_on_which_jobs_of_several_users_fail_one_after_another_is_closed(simulator: Simulated) -> None:
    for owner in ("alice", "bob", "bob", "alice"):
        await ends(simulator, "exit 1", owner)
    assert await slot_problems(simulator) == []
    await ends(simulator, "exit 1", "carol")
    (words,) = await slot_problems(simulator)
    assert "takes no job for 10 min" in words
    found = await asyncio.to_thread(status.query, str(simulator.cluster.settings.socket))
    assert found["last_fault"]["what"] == "BlackHole"


@pytest.mark.parametrize("script", ["exit 0", "kill -TERM $$; sleep 60"])
async def test_a_job_that_ends_well_between_them_shows_that_the_slot_is_none(simulator: Simulated, script: str) -> None:
    passes = script == "exit 0"
    for owner, what in (("alice", "exit 1"), ("bob", script), ("carol", "exit 1"), ("dave", "exit 1")):
        await ends(simulator, what, owner)
    assert (await slot_problems(simulator) == []) is passes


async def test_jobs_that_are_held_or_lost_count_and_removed_ones_do_not(simulator: Simulated) -> None:
    for owner in ("alice", "bob", "carol"):
        job = await begin(simulator, "echo ready; exec sleep 60", owner)
        await job.until_output(b"ready")
        await job.kill("TERM")
        await job.result()
        await simulator.remove(job.name)
    assert await slot_problems(simulator) == []
    assert await fate(simulator, KILL, "alice") == ""
    simulator.cluster.kubelet.fail_pulls("registry.test:5000/debian", "manifest unknown")
    for owner in ("bob", "carol"):
        body = {"Image": simulator.image("debian"), "Cmd": ["true"], **of(owner)}
        name = {"name": "HTCJob12_0_slot1_PID1"}
        assert (await simulator.ask("POST", "/containers/create", body, name)).status == 500
    assert len(await slot_problems(simulator)) == 1


async def test_a_job_that_is_held_for_what_it_did_says_nothing_of_the_slot(simulator: Simulated) -> None:
    assert await fate(simulator, KILL, "mallory") == ""
    await ends(simulator, "exit 0", "bob")
    assert await fate(simulator, KILL, "mallory") != ""
    for owner in ("bob", "carol"):
        await ends(simulator, "exit 1", owner)
    assert await slot_problems(simulator) == []


async def test_the_third_job_in_a_row_that_is_lost_before_its_command_closes_the_slot_too(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    ad: dict[str, object] = {}

    async def keep(_: RemoteStartdAd, attributes: Mapping[str, object]) -> bool:
        ad.update(attributes)
        return True

    async def is_closed() -> bool:
        return ad.get("K8SApiAwayUntil") is not None

    monkeypatch.setattr(RemoteStartdAd, "set", keep)
    monkeypatch.setattr(binder, "_CONFIRM_SECONDS", 0.3)
    monkeypatch.setattr(binder, "_AGAIN_SECONDS", 0.1)
    with monkeypatch.context() as overloaded:
        overloaded.setattr(simulator.cluster.kubelet, "_show_running", lambda: None)
        for _ in range(3):
            assert not await is_closed()
            name = await simulator.create(simulator.image(next(_IMAGES)), "true", **of("alice"))
            answer = await simulator.ask("POST", f"/containers/{name}/start")
            assert "the node may be overloaded" in answer.message
            await simulator.remove(name)
        await eventually(is_closed)


async def test_a_defect_in_what_judges_ends_costs_no_job_and_not_the_engine(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: JobEnds, container: Container) -> None:
        raise LookupError(container.name)

    monkeypatch.setattr(JobEnds, "watch", fail)
    async with simulated(programs) as engine:
        await ends(engine, "exit 0", "alice")
        running = await begin(engine, "echo ready; exit 4", "bob", "13.0")
        assert (await running.result()).code == 4
        await engine.remove(running.name)
        assert (await engine.shell(engine.image("busybox"), "exit 5", **of("carol"))).code == 5
    assert "end of HTCJob12_0_slot1_PID1 failed; this is a defect of k8spilot." in caplog.text
