"""Listeners to the events of a slot."""

import asyncio
import inspect
from datetime import UTC, datetime
from typing import Any

import pytest

from k8spilot.common.errors import ImageNotHere, ImageNotNow, Refused
from k8spilot.model.outcome import Outcome
from k8spilot.model.reference import Reference
from k8spilot.payload import listeners
from k8spilot.payload.listeners import CLOSED_SECONDS, Fanout, SlotListener

IMAGE = Reference.parse("busybox")
CALLS: dict[str, tuple[Any, ...]] = {
    "pulling": (IMAGE,),
    "pulled": (),
    "bound": (IMAGE,),
    "unavailable": (IMAGE, ImageNotNow("no room")),
    "left": (IMAGE, ImageNotHere("no password", "repository")),
    "away": ("api", CLOSED_SECONDS),
    "back": ("api",),
    "black_hole": (600.0, "jobs of three users failed"),
    "excess": ("it has used too much disk",),
    "still_pulling": (IMAGE, "it takes long"),
    "bind_ended": (IMAGE, 1.5, None),
    "reused": (),
    "ended": (Outcome(0, datetime.now(UTC)),),
    "lost": ("the node is gone",),
    "held": (Refused("not here"), "create"),
}


class Notes(SlotListener):
    """Keeps what it is told."""

    def __init__(self, found: list[tuple[str, str, tuple[Any, ...]]], name: str) -> None:
        for method in CALLS:
            setattr(self, method, self._noting(found, name, method))

    @staticmethod
    def _noting(found: list[tuple[str, str, tuple[Any, ...]]], name: str, method: str) -> Any:
        def note(*arguments: Any) -> None:
            found.append((name, method, arguments))

        async def note_later(*arguments: Any) -> None:
            note(*arguments)

        return note_later if inspect.iscoroutinefunction(getattr(SlotListener, method)) else note


class Faulty(SlotListener):
    """Fails in each method."""

    def __init__(self) -> None:
        for method in CALLS:
            setattr(self, method, self._failing(method))

    @staticmethod
    def _failing(method: str) -> Any:
        def fail(*_: Any) -> None:
            raise LookupError(method)

        async def fail_later(*_: Any) -> None:
            fail()

        return fail_later if inspect.iscoroutinefunction(getattr(SlotListener, method)) else fail


def test_there_is_a_case_for_each_method() -> None:
    assert set(CALLS) == {name for name in vars(SlotListener) if not name.startswith("_")}


@pytest.mark.parametrize("method", CALLS)
async def test_all_listeners_are_told_in_order(method: str) -> None:
    found: list[tuple[str, str, tuple[Any, ...]]] = []
    told = getattr(Fanout([Notes(found, "first"), Notes(found, "second")]), method)(*CALLS[method])
    if told is not None:
        await told
    assert found == [(name, method, CALLS[method]) for name in ("first", "second")]


@pytest.mark.parametrize("method", CALLS)
async def test_a_listener_that_fails_costs_the_others_nothing(method: str, caplog: pytest.LogCaptureFixture) -> None:
    found: list[tuple[str, str, tuple[Any, ...]]] = []
    told = getattr(Fanout([Faulty(), Notes(found, "second")]), method)(*CALLS[method])
    if told is not None:
        await told
    assert found == [("second", method, CALLS[method])]
    assert f"Faulty.{method} failed; this is a defect of k8spilot." in caplog.text


@pytest.mark.parametrize("method", CALLS)
async def test_a_listener_need_not_have_a_method(method: str) -> None:
    told = getattr(Fanout([SlotListener()]), method)(*CALLS[method])
    assert (await told if inspect.iscoroutine(told) else told) is None


async def test_a_bind_that_ends_while_its_report_is_under_way_lets_the_report_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise HTCondor's tool that updates the ad is killed, and the startd logs an error."""
    monkeypatch.setattr(listeners, "_SLOW_SECONDS", 0.0)
    found: list[str] = []
    is_reporting, may_end = asyncio.Event(), asyncio.Event()

    class Slow(SlotListener):
        async def pulling(self, reference: Reference) -> None:
            found.append(f"begins {reference}")
            is_reporting.set()
            await may_end.wait()
            found.append("reported")

        async def pulled(self) -> None:
            found.append("withdrawn")

    async with asyncio.TaskGroup() as tasks:
        async with listeners.reported(Slow(), IMAGE, lambda work, name: tasks.create_task(work(), name=name)):
            await is_reporting.wait()
        may_end.set()
    assert found == [f"begins {IMAGE}", "reported", "withdrawn"]


async def test_a_short_bind_is_not_reported() -> None:
    found: list[tuple[str, str, tuple[Any, ...]]] = []
    async with asyncio.TaskGroup() as tasks:
        listener = Notes(found, "one")
        async with listeners.reported(listener, IMAGE, lambda work, name: tasks.create_task(work(), name=name)):
            pass
    assert sorted(method for _, method, _ in found) == ["bind_ended", "bound"]
