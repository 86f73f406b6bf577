"""The watch of the pod's processes: when it ends the pilot, and what it does not believe."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from k8spilot.condor.daemons import process_watch
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.condor.daemons.process_watch import ProcessWatch
from tests.waiting import eventually

LINE = (
    "11/28/26 09:35:11 (pid:42) Create Process: fork() for '/run/k8spilot/condor/starter' failed: "
    "Resource temporarily unavailable (11)"
)


class Watched:
    """A running watch of a pod whose room a test decides about."""

    def __init__(self, seconds: float) -> None:
        self.room = False
        self.tries = 0
        self.ends: list[str] = []
        self.watch = ProcessWatch(self.ends.append, seconds=seconds, pause=0.01, has_room=self._has_room)
        self.running = asyncio.create_task(self.watch.run())

    async def _has_room(self) -> bool:
        self.tries += 1
        return self.room

    def reads(self, text: str = LINE, log: str = "StartLog") -> None:
        """Give the watch a line of a log."""
        self.watch.handle_line(log, LogLine.of(text))


@pytest.fixture
async def watched(request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    found = Watched(getattr(request, "param", 0.1))
    yield found
    found.running.cancel()


async def test_a_pilot_that_can_start_no_process_for_long_ends_once_and_says_why(watched: Watched) -> None:
    watched.reads()
    await asyncio.wait_for(watched.running, 10)
    assert watched.tries > 1
    assert len(watched.ends) == 1
    assert "podPidsLimit" in watched.ends[0]


async def test_a_line_about_processes_is_not_believed_where_they_can_be_started(watched: Watched) -> None:
    watched.room = True
    for tries in (1, 2):
        watched.reads()
        await eventually(partial(lambda tries: watched.tries == tries, tries))
    assert watched.ends == []


@pytest.mark.parametrize("watched", [60.0], indirect=True)
async def test_processes_that_can_be_started_again_leave_the_pilot_as_it_is(watched: Watched) -> None:
    watched.reads()
    await eventually(lambda: watched.tries > 1)
    watched.room = True
    tries = watched.tries
    await eventually(lambda: watched.tries > tries)
    watched.reads()
    await eventually(lambda: watched.tries > tries + 1)
    assert watched.ends == []


@pytest.mark.parametrize(
    ("text", "log"),
    [
        (LINE, "MasterLog"),
        (LINE.replace("Resource temporarily unavailable (11)", "Exec format error (8)"), "StartLog"),
        ("11/28/26 09:35:11 (pid:42) slot1: Changing activity: Idle -> Busy", "StartLog"),
    ],
)
async def test_other_lines_are_no_reason_to_look(watched: Watched, text: str, log: str) -> None:
    watched.reads(text, log)
    await asyncio.sleep(0.05)
    assert watched.tries == 0


async def test_room_is_looked_for_by_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await process_watch.has_room()
    start = asyncio.create_subprocess_exec
    started: list[asyncio.subprocess.Process] = []

    async def ninth_fails(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        if len(started) == 8:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(await start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", ninth_fails)
    assert not await process_watch.has_room()
    assert all(one.returncode is not None for one in started)
