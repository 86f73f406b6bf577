"""Removal between jobs: none goes on beside the next one."""

import asyncio
import threading
from pathlib import Path

import pytest

from k8spilot.common.errors import PayloadLost, PilotError
from k8spilot.payload.listeners import CLOSED_SECONDS
from k8spilot.payload.scrub.from_pilot import Leftovers, PilotScrubber
from k8spilot.payload.scrub.scrubber import ScrubRunner
from k8spilot.payload_init.server import PayloadInitServer


class Slow(Leftovers):
    """Takes as long as it is told to."""

    def __init__(self) -> None:
        super().__init__([], 46998, [])
        self.begun = 0
        self.has_begun = threading.Event()
        self.ended = 0
        self.may_end = threading.Event()

    def remove_sandboxes(self) -> None:
        """Wait."""
        self.begun += 1
        self.has_begun.set()
        assert self.may_end.wait(10)
        self.ended += 1


def _runner(scratch: Leftovers, closed: list[float], tmp_path: Path) -> ScrubRunner:
    return ScrubRunner(PilotScrubber(scratch, PayloadInitServer(tmp_path / "socket", 46998)), closed.append)


async def test_a_removal_that_nobody_waits_for_any_more_is_over_before_the_next_begins(tmp_path: Path) -> None:
    scratch = Slow()
    closed: list[float] = []
    scrubbing = _runner(scratch, closed, tmp_path)
    first = asyncio.create_task(scrubbing.remove_sandboxes())
    await asyncio.to_thread(scratch.has_begun.wait, 5)
    first.cancel()
    second = asyncio.create_task(scrubbing.remove_sandboxes())
    await asyncio.sleep(0.05)
    assert (scratch.begun, first.done(), second.done()) == (1, False, False)
    scratch.may_end.set()
    await second
    assert (scratch.begun, scratch.ended, first.cancelled(), closed) == (2, 2, True, [])


async def test_one_for_which_no_thread_can_be_started_closes_the_slot_and_is_not_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Slow()
    scratch.may_end.set()
    closed: list[float] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(PayloadLost, match="no thread can be started in the pilot"):
            await _runner(scratch, closed, tmp_path).remove_sandboxes()
    assert closed == [CLOSED_SECONDS]
    await asyncio.to_thread(lambda: None)
    await asyncio.to_thread(lambda: None)
    assert scratch.begun == 0


async def test_one_that_fails_after_nobody_waits_for_it_is_told_to_nobody(tmp_path: Path) -> None:
    class Fails(Slow):
        def remove_sandboxes(self) -> None:
            super().remove_sandboxes()
            raise PilotError("it stays")

    scratch = Fails()
    closed: list[float] = []
    removal = asyncio.create_task(_runner(scratch, closed, tmp_path).remove_sandboxes())
    await asyncio.to_thread(scratch.has_begun.wait, 5)
    removal.cancel()
    await asyncio.sleep(0)
    scratch.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await removal
