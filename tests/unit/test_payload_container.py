"""The turns of a payload container: nothing that comes late from one job's turn touches the next one's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8spilot.common.aio import shielded
from k8spilot.common.errors import BindError, PilotError, Refused
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.payload_state import PayloadState
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.bind import Timeouts
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload.listeners import SlotListener

ONE, TWO = (Reference.parse(f"registry.test/{name}:1") for name in ("one", "two"))
NEVER = Command((b"",))
NO_STDIO = cast("Any", None)


class Binder:
    """Binds what it is told to, when it is told to."""

    name = "payload"
    unfinished = None

    def __init__(self) -> None:
        self.binds: dict[Reference, asyncio.Future[None]] = {}

    async def bind(self, image: Image, _attempt: str, _seconds: float) -> Any:
        done = self.binds[image.reference] = asyncio.get_running_loop().create_future()
        await shielded(done)
        return SimpleNamespace(image=image)

    async def confirm(self, _change: object) -> Any:
        await asyncio.Event().wait()

    async def unbind(self) -> None:
        """Nothing is to be done."""


class Lookup:
    """Knows each image."""

    def admit(self, _reference: Reference) -> None: ...

    def keep(self, _image: Image) -> None: ...

    async def find(self, reference: Reference) -> Image:
        return Image(reference, "sha256:0")


@asynccontextmanager
async def _payload() -> AsyncIterator[tuple[PayloadContainer, Binder]]:
    binder, scrubber = Binder(), SimpleNamespace(needs_container=False)
    async with asyncio.TaskGroup() as tasks:
        timeouts = Timeouts(60.0, 60.0, 60.0)
        lookup, known, scrubs = cast("Any", (Lookup(), binder, scrubber))
        payload = PayloadContainer(lookup, known, scrubs, tasks, timeouts=timeouts, listener=SlotListener())
        try:
            yield payload, binder
        finally:
            payload.close()


def _state(payload: PayloadContainer) -> PayloadState:
    """The state now, of which mypy does not remember what it was."""
    return payload.state


async def _begun(binder: Binder, reference: Reference) -> asyncio.Future[None]:
    async with asyncio.timeout(5):
        while reference not in binder.binds:  # noqa: ASYNC110 -- no event tells of it
            await asyncio.sleep(0)
    return binder.binds[reference]


async def test_a_bind_that_ends_in_the_moment_of_its_removal_moves_nothing() -> None:
    async with _payload() as (payload, binder):
        payload.begin(ONE)
        (await _begun(binder, ONE)).set_result(None)
        await asyncio.sleep(0)  # the bind is about to go on, and is not cancelled any more
        assert payload.give_up()
        payload.begin(TWO)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (payload.state, payload.reference) == (PayloadState.PULLING, TWO)


async def test_a_job_that_is_late_does_not_end_the_next_ones_turn() -> None:
    async with _payload() as (payload, binder):
        bound = asyncio.ensure_future(payload.bound(ONE))
        (await _begun(binder, ONE)).set_result(None)
        first = await bound
        assert _state(payload) is PayloadState.READY
        await payload.remove(first)
        second = asyncio.ensure_future(payload.bound(TWO))
        await _begun(binder, TWO)
        payload.drop(first)
        await payload.remove(first)
        with pytest.raises(Refused, match="is claimed"):
            await payload.start(first, NEVER, NO_STDIO)
        assert _state(payload) is PayloadState.CLAIMED
        binder.binds[TWO].set_result(None)
        assert (await second).image.reference == TWO
        assert _state(payload) is PayloadState.READY


async def test_the_error_of_a_bind_that_nobody_had_claimed_is_the_claimants() -> None:
    async with _payload() as (payload, binder):
        payload.begin(ONE)
        (await _begun(binder, ONE)).set_exception(BindError("no such image"))
        async with asyncio.timeout(5):
            while _state(payload) is PayloadState.PULLING:  # noqa: ASYNC110 -- no event tells of it
                await asyncio.sleep(0)
        assert (payload.state, payload.free) == (PayloadState.PULL_FAILED, True)
        with pytest.raises(BindError, match="no such image"):
            await payload.bound(ONE)
        assert _state(payload) is PayloadState.IDLE


async def test_a_job_is_started_once() -> None:
    async with _payload() as (payload, binder):
        bound = asyncio.ensure_future(payload.bound(ONE))
        (await _begun(binder, ONE)).set_result(None)
        bind = await bound
        starting = asyncio.ensure_future(payload.start(bind, NEVER, NO_STDIO))
        await asyncio.sleep(0)
        assert _state(payload) is PayloadState.PREPARING
        with pytest.raises(Refused, match="is preparing"):
            await payload.start(bind, NEVER, NO_STDIO)
        with pytest.raises(Refused, match="takes one job at a time"):
            payload.begin(TWO)
        payload.drop(bind)
        assert _state(payload) is PayloadState.IDLE
        starting.cancel()
        with pytest.raises((asyncio.CancelledError, PilotError)):
            await starting


async def test_a_payload_container_and_its_bind_show_their_state() -> None:
    async with _payload() as (payload, binder):
        bind = payload.begin(ONE)
        assert repr(payload) == "<PayloadContainer payload PULLING>"
        assert repr(bind) == f"<Bind {bind.subject.attempt} of registry.test/one:1, in progress>"
        (await _begun(binder, ONE)).set_result(None)
        await asyncio.wait([bind.change])
        assert repr(bind).endswith(", bound>")
