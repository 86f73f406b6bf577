"""The deletion cost of the pod: a ReplicaSet deletes idle pilots first."""

from typing import Any

import pytest

from k8spilot.kube.pod import DELETION_COST
from tests.engine.rings import Simulated, eventually, simulated
from tests.simulator.programs import Programs


def owned(kind: str) -> Any:
    """A change of the pod: a controller of this kind has made it."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "pilots", "uid": "1", "controller": True}
    return lambda pod: pod["metadata"].update(ownerReferences=[owner])


async def cost(engine: Simulated) -> str:
    return str(((await engine.pod())["metadata"].get("annotations") or {}).get(DELETION_COST, ""))


async def test_a_pod_with_a_job_costs_more_than_an_idle_one_in_the_same_patches(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0) as engine:
        server = engine.cluster.server
        await server.update(owned("ReplicaSet"))
        job = await engine.begin_shell(engine.image("busybox"), "echo ready; exec sleep 60")
        await job.until_output(b"ready")
        assert await cost(engine) == "100"
        await job.kill("KILL")
        await job.result()
        await engine.remove(job.name)

        async def is_idle() -> bool:
            return await cost(engine) == "0"

        await eventually(is_idle)
        assert server.requests["patch"] == 2  # the bind and the unbind, which there are without it


@pytest.mark.parametrize("kind", ["", "Job"])
async def test_a_pod_that_nobody_judges_by_it_has_no_cost(programs: Programs, kind: str) -> None:
    async with simulated(programs) as engine:
        if kind:
            await engine.cluster.server.update(owned(kind))
        assert (await engine.shell(engine.image("busybox"), "echo right")).stdout == b"right\n"
        assert await cost(engine) == ""


async def test_where_a_policy_forbids_it_jobs_run_all_the_same(programs: Programs) -> None:
    async with simulated(programs) as engine:
        server = engine.cluster.server
        await server.update(owned("ReplicaSet"))
        server.forbidden_annotation = DELETION_COST
        for _ in range(2):
            assert (await engine.shell(engine.image("busybox"), "echo right")).stdout == b"right\n"
        tried = [DELETION_COST.replace("/", "~1") in str(changes) for changes in server.patches]
        assert tried.count(True) == 1
        assert "managedFields" not in server.pod["metadata"]  # the other part stays
