"""K8SPILOT_RELIST: the kubelet is asked to look at once where a job follows within a second."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from k8spilot.kube import relist
from tests.engine.rings import Simulated, simulated
from tests.simulator.node import Timing
from tests.simulator.pod import PAYLOAD, payload_resources
from tests.simulator.programs import Programs

LONG: Final = Timing(relist=3.0)
"""A kubelet whose own looks are noticed."""
LONGER: Final = Timing(relist=6.0)
"""A kubelet whose own looks are noticed on a slow machine."""


@pytest.fixture(autouse=True)
def on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job follows the one before within the time in which a request is needed."""
    monkeypatch.setattr(relist, "_SYNC_SECONDS", 60.0)


@pytest.fixture
def one_request_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that begins a change late is not asked again."""
    monkeypatch.setattr(relist, "_BEGIN_SECONDS", 60.0)


@pytest.fixture
async def slot(programs: Programs) -> AsyncIterator[Simulated]:
    """A slot with that setting."""
    async with simulated(programs, relist=True) as found:
        yield found


def cpu(slot: Simulated) -> str:
    """Limit of the payload container in the pod's specification."""
    return str(payload_resources(slot.cluster.server.pod, PAYLOAD)["limits"]["cpu"])


async def jobs(slot: Simulated, count: int) -> None:
    """Run jobs, one directly after the other."""
    for number in range(count):
        assert (await slot.shell(slot.image("busybox"), f"exit {number}")).code == number


@pytest.mark.usefixtures("one_request_a_change")
async def test_the_cpu_changes_to_and_fro_and_each_job_has_its_result(slot: Simulated) -> None:
    server = slot.cluster.server
    before = cpu(slot)
    await jobs(slot, 1)
    assert server.requests["resize"] == 0, "the kubelet has looked since the last change"
    await jobs(slot, 1)
    assert server.requests["resize"] == 1
    assert cpu(slot) != before
    await jobs(slot, 1)
    assert (server.requests["resize"], relist._thousandths(cpu(slot))) == (2, relist._thousandths(before))


async def changed_within(slot: Simulated) -> float:
    """The time that the second of two jobs takes which follow each other closely."""
    await jobs(slot, 1)
    began = time.monotonic()
    await jobs(slot, 1)
    return time.monotonic() - began


@pytest.mark.slow
async def test_the_next_job_does_not_wait_for_the_kubelets_own_look(programs: Programs) -> None:
    async with simulated(programs, timing=LONG) as without:
        assert await changed_within(without) > 2.0
    async with simulated(programs, timing=LONGER, relist=True) as slot:
        assert await changed_within(slot) < 3.0


@pytest.mark.slow
async def test_a_relist_that_an_earlier_sync_takes_is_followed_by_another(programs: Programs) -> None:
    async with simulated(programs, timing=LONGER, relist=True) as slot:
        slot.cluster.kubelets[0].late_syncs = 1
        assert await changed_within(slot) < 3.0
        assert slot.cluster.server.requests["resize"] in {2, 3}, "the first is without effect"


@pytest.mark.slow
async def test_a_kubelet_that_does_nothing_is_asked_three_times(programs: Programs) -> None:
    async with simulated(programs, timing=LONG, relist=True) as slot:
        slot.cluster.kubelets[0].late_syncs = 10
        assert await changed_within(slot) > 2.0
        assert slot.cluster.server.requests["resize"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("one_request_a_change")
async def test_a_server_that_fails_for_a_moment_is_asked_once_for_each_change(programs: Programs) -> None:
    async with simulated(programs, timing=Timing(relist=1.0), relist=True) as slot:
        server = slot.cluster.server
        await jobs(slot, 1)
        server.resize_refusal = (503, "the server is currently unable to handle the request")
        await jobs(slot, 2)
        assert server.requests["resize"] == 2
        server.resize_refusal = None
        await jobs(slot, 1)
        assert server.requests["resize"] == 3


async def test_a_job_that_comes_later_makes_no_request(slot: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relist, "_SYNC_SECONDS", 0.0)
    await jobs(slot, 3)
    assert slot.cluster.server.requests["resize"] == 0


async def test_after_three_refusals_there_are_no_more_requests_and_jobs_run(
    slot: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    slot.cluster.server.resize_refusal = (403, 'cannot patch resource "pods/resize"')
    with caplog.at_level(logging.WARNING):
        await jobs(slot, 6)
    assert slot.cluster.server.requests["resize"] == 3
    (told,) = [one for one in caplog.messages if "next look at the pod" in one]
    assert 'cannot patch resource "pods/resize"' in told


@pytest.mark.usefixtures("one_request_a_change")
async def test_a_failure_now_and_then_is_no_refusal(slot: Simulated) -> None:
    server = slot.cluster.server
    await jobs(slot, 1)
    for _ in range(3):
        server.resize_refusal = (500, "etcdserver: leader changed")
        await jobs(slot, 2)
        server.resize_refusal = None
        await jobs(slot, 1)
    assert server.requests["resize"] == 9


async def test_a_request_without_an_answer_does_not_delay_the_job(
    slot: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    await jobs(slot, 1)
    never = asyncio.Event()

    async def silent(*_: Any, **__: Any) -> None:
        await never.wait()

    monkeypatch.setattr(relist.Relist, "_resize", silent)
    async with asyncio.timeout(10):
        await jobs(slot, 2)


async def test_where_the_kubelet_never_resizes_there_are_no_requests(slot: Simulated) -> None:
    def infeasible(pod: dict[str, Any]) -> None:
        words = "In-place resize of containers is infeasible for pods with static CPU management policy"
        condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": words}
        pod["status"]["conditions"] = [*pod["status"].get("conditions", ()), condition]

    await slot.cluster.server.update(infeasible)
    await jobs(slot, 3)
    assert slot.cluster.server.requests["resize"] == 0
