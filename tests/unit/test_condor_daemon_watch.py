"""The work beside HTCondor's daemons, as the engine and the HTCondor agent do it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from k8spilot.common import aio
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.daemons import watch as subject
from k8spilot.condor.daemons.end_reason import EndReason
from k8spilot.condor.daemons.watch import DaemonWatch
from k8spilot.condor.folders import Folders
from k8spilot.model.pool_state import LOG as POOL_LOG
from tests.unit.condor_reads import settings as known_settings
from tests.unit.observed_follower import observe_followers
from tests.waiting import eventually


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.setattr(aio, "_RESTART_SECONDS", 0.05)
    known = Folders(tmp_path / "execute", root=tmp_path)
    known.private.mkdir(parents=True)
    known.log.mkdir(parents=True)
    (known.log / "MasterLog").touch()
    return known


class Reports:
    """The lines of a daemon's log; the first one meets a defect if `fails`."""

    def __init__(self, *, fails: bool = False) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self._fails = fails

    async def __call__(self, log: str, line: str) -> None:
        if log == POOL_LOG:
            return
        self.lines.put_nowait(line)
        if self._fails:
            self._fails = False
            raise ValueError("a defect")


def watch(folders: Folders, report: Callable[[str, str], Awaitable[None]], **options: Any) -> DaemonWatch:
    startd_ad = LocalStartdAd(folders, known_settings(), update="true", query="true", vacate="true")
    return DaemonWatch(startd_ad, known_settings(), EndReason(None, 30.0), report, lambda: None, **options)


@pytest.mark.parametrize("watches_processes", [False, True])
async def test_a_defect_in_the_handling_of_a_line_ends_nothing_and_the_line_is_read_again(
    folders: Folders, watches_processes: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_waiting = observe_followers(monkeypatch)
    reports = Reports(fails=True)
    daemons = watch(folders, reports, watches_processes=watches_processes)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks, daemons.running(tasks, include_existing=False):
        await eventually(is_waiting)
        (folders.log / "MasterLog").write_text("one\n")
        assert [await reports.lines.get() for _ in range(2)] == ["one", "one"]
    assert "The reader of HTCondor's logs failed; this is a defect of k8spilot. It restarts." in caplog.text


async def test_a_defect_in_the_check_of_the_daemons_ends_nothing(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: asyncio.Queue[None] = asyncio.Queue()

    async def fail(*_: object) -> None:
        calls.put_nowait(None)
        raise RuntimeError("a defect")

    monkeypatch.setattr(subject, "end_hanging_daemons", fail)
    daemons = watch(folders, Reports())
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks, daemons.running(tasks, include_existing=False):
        for _ in range(2):
            await calls.get()
    assert "The check of HTCondor's daemons failed; this is a defect of k8spilot. It restarts." in caplog.text


async def test_the_last_lines_are_read_and_then_sent(folders: Folders) -> None:
    reports = Reports()
    sent: list[int] = []

    async def flush() -> None:
        sent.append(reports.lines.qsize())

    daemons = watch(folders, reports)
    async with (
        asyncio.timeout(10),
        asyncio.TaskGroup() as tasks,
        daemons.running(tasks, include_existing=True, flush=flush),
    ):
        await asyncio.sleep(0.3)
        (folders.log / "MasterLog").write_text("**** condor_master (condor_MASTER) pid 7 EXITING WITH STATUS 0\n")
    assert sent == [1]
