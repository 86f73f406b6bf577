"""The watch of the pod's processes: when it ends the pilot, and what it does not believe."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from k8spilot.condor.log_lines import LogLine
from k8spilot.condor.process_watch import ProcessWatch

LINE = (
    "11/28/26 09:35:11 (pid:42) Create Process: fork() for '/run/k8spilot/condor/starter' failed: "
    "Resource temporarily unavailable (11)"
)


class Watched:
    """A running watch, and the reasons by which it has ended the pilot."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.watch = ProcessWatch(self.ends.append, seconds=0.3, pause=0.01)
        self.running = asyncio.create_task(self.watch.run())

    async def reads(self, text: str = LINE, log: str = "StartLog") -> None:
        """Give it a line, and the time to end the pilot twice."""
        self.watch.handle_line(log, LogLine.of(text))
        await asyncio.sleep(0.6)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    found = Watched()
    yield found
    found.running.cancel()


@pytest.fixture
def used_up(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The pod has no free process until the change is undone."""

    async def start(*_: Any) -> asyncio.subprocess.Process:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return monkeypatch


@pytest.mark.usefixtures("used_up")
async def test_a_pilot_that_can_start_no_process_for_long_ends_once_and_says_why(watched: Watched) -> None:
    await watched.reads()
    await watched.reads()
    assert len(watched.ends) == 1
    assert "podPidsLimit" in watched.ends[0]


async def test_a_line_about_processes_is_not_believed_where_one_can_be_started(watched: Watched) -> None:
    await watched.reads()
    assert watched.ends == []
    assert not watched.running.done()


async def test_processes_that_are_free_again_in_time_leave_the_pilot_as_it_is(
    watched: Watched, used_up: pytest.MonkeyPatch
) -> None:
    watched.watch.handle_line("StartLog", LogLine.of(LINE))
    await asyncio.sleep(0.1)
    used_up.undo()
    await asyncio.sleep(0.5)
    assert watched.ends == []


@pytest.mark.usefixtures("used_up")
@pytest.mark.parametrize(
    ("text", "log"),
    [
        (LINE, "MasterLog"),
        (LINE.replace("Resource temporarily unavailable (11)", "Exec format error (8)"), "StartLog"),
        ("11/28/26 09:35:11 (pid:42) slot1: Changing activity: Idle -> Busy", "StartLog"),
    ],
)
async def test_other_lines_are_no_reason_to_look(watched: Watched, text: str, log: str) -> None:
    await watched.reads(text, log)
    assert watched.ends == []
