"""A container's moves, and what it does with its payload container and its run on the way."""

import asyncio
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8spilot.common.errors import PayloadLost, PilotError, Refused
from k8spilot.docker.container import Container
from k8spilot.docker.removal import remove
from k8spilot.model.container_state import ContainerState
from k8spilot.model.outcome import Outcome
from k8spilot.model.state_table import IllegalEvent

GONE = PayloadLost("the client has gone")


class Payload:
    """Notes which binds are dropped."""

    def __init__(self) -> None:
        self.dropped: list[object] = []

    def drop(self, bind: object) -> None:
        self.dropped.append(bind)


class Run:
    """Notes whether it is forsaken."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.is_forsaken = False

    def forsake(self) -> None:
        self.is_forsaken = True


def _container() -> tuple[Container, Payload]:
    payload, nothing = Payload(), cast("Any", None)
    bind = cast("Any", SimpleNamespace())
    return (
        Container(
            name="name",
            image=nothing,
            specification=nothing,
            payload=cast("Any", payload),
            command=nothing,
            stdio=nothing,
            bind=bind,
        ),
        payload,
    )


def _running() -> tuple[Container, Payload, Run]:
    container, payload = _container()
    run = Run()
    container.begin_start()
    container.release(cast("Any", run))
    return container, payload, run


async def test_a_result_is_told_when_it_is_final_and_after_the_removal() -> None:
    container, payload, run = _running()
    assert (container.running, container.outcome, container.settled.is_set()) == (True, None, False)
    run.ended.set_result(Outcome.of(3 << 8))
    await container.settled.wait()
    container.end_removal()
    assert container.outcome == run.ended.result()
    assert (container.state, container.removed.is_set(), payload.dropped) == (ContainerState.REMOVED, True, [])


async def test_a_run_that_is_lost_has_no_result() -> None:
    container, _, run = _running()
    run.ended.set_exception(PayloadLost("the node has died"))
    await container.settled.wait()
    with pytest.raises(PayloadLost, match="the node has died"):
        _ = container.outcome


async def test_any_error_of_a_run_loses_the_job() -> None:
    container, _, run = _running()
    run.ended.set_exception(PilotError("a fault of the pilot's"))
    await container.settled.wait()
    assert container.state is ContainerState.LOST
    with pytest.raises(PayloadLost, match="a fault of the pilot's"):
        _ = container.outcome


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_container_whose_client_goes_before_its_release_gives_the_payload_container_back(is_starting: bool) -> None:
    container, payload = _container()
    if is_starting:
        container.begin_start()
    container.forsake(GONE)
    assert (container.state, payload.dropped) == (ContainerState.LOST, [container.bind])
    assert container.settled.is_set()


async def test_a_container_whose_client_goes_later_runs_until_it_is_ended_and_has_no_result_then() -> None:
    container, payload, run = _running()
    container.forsake(GONE)
    container.forsake(GONE)  # of two clients
    assert (container.running, run.is_forsaken, payload.dropped) == (True, True, [])
    with pytest.raises(PayloadLost):
        _ = container.outcome
    run.ended.set_result(Outcome.of(0))
    await container.settled.wait()
    assert container.state is ContainerState.LOST
    with pytest.raises(PayloadLost, match="the client has gone"):
        _ = container.outcome


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_container_that_is_killed_early_has_the_signals_result_and_lets_the_slot_go(is_starting: bool) -> None:
    container, payload = _container()
    if is_starting:
        container.begin_start()
    container.kill_early(signal.SIGTERM)
    assert container.outcome is not None
    assert (container.outcome.code, payload.dropped) == (143, [container.bind])
    with pytest.raises(IllegalEvent):
        container.begin_start()


def test_a_start_that_fails_tells_its_job_why() -> None:
    container, _ = _container()
    container.begin_start()
    container.fail(Refused("there is no such program"))
    assert (container.state, container.error) == (ContainerState.FAILED, "there is no such program")
    assert container.settled.is_set()


def test_of_several_signals_that_wait_for_a_start_sigkill_counts() -> None:
    container, _ = _container()
    for number, expected in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT), (9, 9), (15, 9)):
        container.defer(number)
        assert container.deferred == expected


async def test_a_container_that_runs_is_not_removed_before_its_end() -> None:
    container, _, _ = _running()
    with pytest.raises(IllegalEvent):
        container.end_removal()
    assert not container.removed.is_set()


async def test_what_waits_for_a_removal_that_failed_waits_no_longer() -> None:
    container, payload, run = _running()

    async def fail(_bind: object) -> None:
        raise IllegalEvent("a fault of ours")

    payload.remove = fail  # type: ignore[attr-defined]
    memory = SimpleNamespace(give=lambda _kept: None)
    engine = SimpleNamespace(
        containers={"name": container}, leaving={}, memory=memory, forget_executions=lambda _container: None
    )
    with pytest.raises(IllegalEvent):
        await remove(cast("Any", engine), container)
    assert (container.state, engine.leaving) == (ContainerState.REMOVED, {})
    assert container.settled.is_set()
    assert container.removed.is_set()
    run.ended.set_result(Outcome.of(0))
    await asyncio.sleep(0)
    with pytest.raises(PayloadLost, match="failed to end"):
        _ = container.outcome


def _returned(container: Container) -> list[str]:
    """Give the container to HTCondor; the list shows what it has been asked to vacate."""
    vacated: list[str] = []
    container.returner = lambda: vacated.append(container.name)
    return vacated


async def test_a_lost_container_that_is_returned_keeps_its_state_until_htcondors_sigkill() -> None:
    container, _, run = _running()
    vacated = _returned(container)
    run.ended.set_exception(PayloadLost("the node has died"))
    await asyncio.sleep(0)
    assert (vacated, container.state, container.is_returning) == (["name"], ContainerState.RUNNING, True)
    assert (container.running, container.outcome, container.settled.is_set()) == (True, None, False)
    container.kill_lost(signal.SIGKILL)
    assert container.outcome is not None
    assert (container.outcome.code, container.state) == (137, ContainerState.EXITED)
    assert container.loss is not None


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_lost_container_that_has_not_run_is_killed_by_htcondors_sigkill(is_starting: bool) -> None:
    container, payload = _container()
    vacated = _returned(container)
    if is_starting:
        container.begin_start()
    before = container.state
    container.lose(GONE)
    assert (vacated, container.state, container.outcome) == (["name"], before, None)
    container.kill_lost(signal.SIGKILL)
    assert (container.state, payload.dropped) == (ContainerState.KILLED, [container.bind])


def test_a_lost_container_that_htcondor_does_not_kill_is_lost() -> None:
    container, _ = _container()
    _returned(container)
    container.lose(GONE)
    container.end_return()
    container.end_return()  # by the removal
    assert (container.state, container.is_returning) == (ContainerState.LOST, False)
    with pytest.raises(PayloadLost, match="the client has gone"):
        _ = container.outcome
    with pytest.raises(IllegalEvent):
        container.kill_lost(signal.SIGKILL)


def test_a_container_that_is_not_lost_cannot_be_killed_as_lost() -> None:
    container, _ = _container()
    with pytest.raises(IllegalEvent):
        container.kill_lost(signal.SIGKILL)
    assert container.state is ContainerState.CREATED
    assert container.outcome is None


def test_a_container_that_a_client_wanted_to_end_is_not_returned() -> None:
    container, _ = _container()
    vacated = _returned(container)
    container.record_signal()
    container.lose(GONE)
    assert (vacated, container.state) == ([], ContainerState.LOST)
