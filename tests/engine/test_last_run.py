"""A job that the kubelet has evicted with its pod, in the next pilot: while it asks about that pod, and afterwards."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.client import Failed, unique_name
from tests.engine.rings import Simulated, eventually, simulated
from tests.simulator.programs import Programs

NOW = 1_800_000_000
"""2027-01-15T08:00:00Z."""
AD = """LastRemoteHost = "slot1@Site.pilot-9"
LastVacateTime = {vacated}
JobCurrentStartDate = {began}
NumJobStarts = {starts}
"""
EVICTED: dict[str, Any] = {
    "spec": {"containers": [{"name": "payload"}]},
    "status": {
        "reason": "Evicted",
        "message": "Pod ephemeral local storage usage exceeds the total limit of containers 300Mi. ",
        "conditions": [
            {"type": "ContainersReady", "reason": "PodFailed", "lastTransitionTime": "2027-01-15T08:00:00Z"}
        ],
    },
}


class Next:
    """The next pilot, and the job's ad in its sandbox."""

    def __init__(self, engine: Simulated, sandbox: Path) -> None:
        self.engine = engine
        self.server = engine.cluster.server
        self._sandbox = sandbox

    async def create(self, name: str = "", *, lasted: int = 3600, starts: int = 1) -> str:
        """Create the job's container."""
        text = AD.format(vacated=NOW + 5, began=NOW - lasted, starts=starts)
        (self._sandbox / ".job.ad").write_text(text)
        options = {"Labels": {"org.htcondorproject": "True"}, "Env": [f"_CONDOR_SCRATCH_DIR={self._sandbox}"]}
        return await self.engine.create(self.engine.image("busybox"), "sh", "-c", "exit 3", name=name, **options)

    async def asked(self, times: int) -> None:
        """Wait until the pilot has asked so often."""

        async def has() -> bool:
            return self.server.requests["get"] >= times

        await eventually(has)


@pytest.fixture
async def pilot(programs: Programs, tmp_path: Path) -> AsyncIterator[Next]:
    (tmp_path / "dir_1").mkdir()
    async with simulated(programs, glidein_resource_name="Site", execute=tmp_path) as engine:
        engine.cluster.server.others["pilot-9"] = EVICTED
        yield Next(engine, tmp_path / "dir_1")


async def test_a_job_that_filled_its_last_pod_is_refused_and_one_that_may_not_have_done_so_runs(pilot: Next) -> None:
    for lasted, starts in ((3600, 1), (20, 2)):
        with pytest.raises(Failed, match="Kubernetes evicted the pod"):
            await pilot.create(lasted=lasted, starts=starts)
    job = await pilot.engine.start(await pilot.create(lasted=20))
    assert (await job.result()).code == 3


async def test_two_containers_of_one_name_are_not_created_while_the_first_one_waits(pilot: Next) -> None:
    pilot.server.others["pilot-9"] = {}
    pilot.server.tells_of_others.clear()
    name, before = unique_name(), pilot.server.requests["get"]
    first = asyncio.ensure_future(pilot.create(name))
    await pilot.asked(before + 1)
    with pytest.raises(Failed, match=f"{name} is in use"):
        async with asyncio.timeout(5):
            await pilot.create(name)
    pilot.server.tells_of_others.set()
    assert await first == name


async def test_a_job_that_is_killed_while_the_pilot_asks_about_its_last_pod_ends_at_once(pilot: Next) -> None:
    pilot.server.tells_of_others.clear()
    name, before = unique_name(), pilot.server.requests["get"]
    creating = asyncio.ensure_future(pilot.create(name))
    await pilot.asked(before + 1)
    await pilot.engine.call("POST", f"/containers/{name}/kill", params={"signal": "9"})
    async with asyncio.timeout(5):
        await creating
    result = await (await pilot.engine.start(name)).result()
    pilot.server.tells_of_others.set()
    assert result.code == 137
