"""The watch of the pool, with answers in place of collectors."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from k8spilot.condor.daemons import pool_watch as subject
from k8spilot.condor.daemons.collectors import Answer
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.condor.daemons.pool_watch import PoolWatch
from k8spilot.condor.folders import Folders
from k8spilot.model.pool_state import LOG, PoolState
from tests.unit.condor_reads import settings as known_settings
from tests.waiting import eventually

FIRST = LogLine("Initial update sent to collector(s)", "D_ALWAYS")
FAILED = LogLine("Failed to start non-blocking update to <10.0.0.1:9618>.", "D_ALWAYS")
GOOD = Answer("cm", updated=1_800_000_000.0)
ACCEPTED = Answer("cm", identity="pilot@pool (TOKEN)")
NO_AD = Answer("cm", identity="pilot@pool (TOKEN)", problem="cm accepts this pilot, but has no ad")
NOBODY = Answer("cm", problem="cm: nobody answers")


class Watched:
    """A watch, what its collectors answer, and what it reports."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.answer = NOBODY
        self.times: list[float] = []
        """Times of the questions, by the event loop's clock."""
        self.states: list[PoolState] = []
        self.ends: list[str] = []
        folders = Folders(folder / "execute", root=folder)
        folders.private.mkdir(parents=True, exist_ok=True)
        known = replace(known_settings(), join_timeout_seconds=limit)
        self.watch = PoolWatch(known, folders, self._report, self.ends.append)
        self.watch._collectors.query = self._look  # type: ignore[method-assign]

    @property
    def asked(self) -> int:
        return len(self.times)

    @property
    def state(self) -> PoolState:
        return self.states[-1] if self.states else self.watch.state

    async def _look(self) -> Answer:
        self.times.append(asyncio.get_running_loop().time())
        return self.answer

    async def _report(self, log: str, text: str) -> None:
        assert log == LOG
        self.states.append(PoolState.of(text))

    async def until(self, condition: Callable[[], object]) -> None:
        await eventually(condition)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_START_SECONDS", 0.05)
    monkeypatch.setattr(subject, "_PAUSE_SECONDS", (0.02,))
    monkeypatch.setattr(subject, "_LEAST_SECONDS", 0.2)
    monkeypatch.setattr(subject, "_JOINING_SECONDS", 60.0)
    monkeypatch.setattr(subject, "_LOST_SECONDS", 60.0)
    monkeypatch.setattr(subject, "_STARTING_SECONDS", 60.0)


@asynccontextmanager
async def watching(folder: Path, limit: float = 0.0) -> AsyncIterator[Watched]:
    watched = Watched(folder, limit)
    task = asyncio.create_task(watched.watch.run())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_slot_is_not_in_the_pool_before_a_collector_says_so(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.asked > 2)
        assert not any(state.in_pool for state in watched.states)
        assert watched.state.sentence == "not in the pool: cm: nobody answers"
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
        state = watched.state
        assert state.updated == 1_800_000_000.0
        assert state.sentence == "in the pool as slot1@Resource-A.pilot-7 of cm"


async def test_a_startd_that_joins_is_given_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching(tmp_path) as watched:
        watched.answer = NO_AD
        await watched.until(lambda: watched.asked > 4)
        assert [state.problem for state in watched.states] == [""], "a busy node starts HTCondor slowly"
        watched.watch.handle_line("StartLog", FIRST)
        asked = watched.asked
        await watched.until(lambda: watched.asked > asked + 3)
        assert [state.problem for state in watched.states] == [""]
        monkeypatch.setattr(subject, "_JOINING_SECONDS", 0.0)
        await watched.until(lambda: watched.state.problem == NO_AD.problem)


async def test_a_collector_that_is_late_once_is_not_missing(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.asked == 1)
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
        assert not any(state.problem for state in watched.states)


async def test_acceptance_alone_counts_where_no_ad_can_be_read_and_no_update_has_failed(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.answer = ACCEPTED
        await watched.until(lambda: watched.asked > 3)
        assert not watched.state.in_pool, "the startd has sent nothing yet"
        watched.watch.handle_line("StartLog", FIRST)
        await watched.until(lambda: watched.state.in_pool)
        assert watched.state.updated is not None


async def test_a_failed_update_is_only_a_reason_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_LEAST_SECONDS", 1.0)
    async with watching(tmp_path) as watched:
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
        asked = watched.asked
        for _ in range(1000):
            watched.watch.handle_line("StartLog", FAILED)
            await asyncio.sleep(0)
        await watched.until(lambda: watched.asked > asked)
        assert watched.asked == asked + 1, "a flood of lines is no flood of questions"
        assert watched.times[-1] - watched.times[-2] > 0.9
        assert watched.state.in_pool


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("MasterLog", FAILED.message),
        ("StartLog", f"slot1: job says {FAILED.message}"),
        ("StartLog", f"{FIRST.message} of a job"),
        ("StarterLog", FIRST.message),
    ],
)
async def test_other_lines_are_no_reason(tmp_path: Path, log: str, message: str) -> None:
    async with watching(tmp_path) as watched:
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
        asked = watched.asked
        watched.watch.handle_line(log, LogLine(message))
        await asyncio.sleep(0.4)
        assert watched.asked == asked


async def test_a_slot_that_was_in_the_pool_has_the_time_of_an_update_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_LOST_SECONDS", 2.0)
    async with watching(tmp_path, limit=0.1) as watched:
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
        await asyncio.sleep(2.1)  # longer than the grace, which begins with the first bad answer
        watched.answer = NOBODY
        watched.watch.handle_line("StartLog", FAILED)
        asked = watched.asked
        await watched.until(lambda: watched.asked > asked + 1)
        assert watched.state.in_pool
        monkeypatch.setattr(subject, "_LOST_SECONDS", 0.0)
        await watched.until(lambda: not watched.state.in_pool)
        assert watched.state.updated == 1_800_000_000.0
        assert not watched.ends, "it was in the pool"
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)


async def test_a_pilot_that_was_never_in_the_pool_ends_with_that_sentence(tmp_path: Path) -> None:
    async with watching(tmp_path, limit=0.3) as watched:
        await watched.until(lambda: watched.ends)
        assert watched.ends[0] == "the slot was not in the pool within 0.3 s: cm: nobody answers"


async def test_an_engine_after_a_dead_one_knows_that_the_slot_was_in_the_pool(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
    async with watching(tmp_path, limit=0.1) as watched:
        await asyncio.sleep(0.5)
        assert watched.asked > 2
        assert not watched.ends
        watched.answer = ACCEPTED
        await watched.until(lambda: watched.state.in_pool)  # the startd's first update was logged long ago


async def test_the_log_has_one_line_for_each_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.asked > 4)
        watched.answer = GOOD
        await watched.until(lambda: watched.state.in_pool)
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("ERROR", "Not in the pool: cm: nobody answers."),
        ("INFO", "In the pool as slot1@Resource-A.pilot-7 of cm."),
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"in_pool": true}', "nonsense"])
def test_a_state_is_read_from_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        PoolState.of(text)


async def test_a_collector_that_is_late_more_than_once_has_the_time_of_a_busy_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Answer("cm", problem="cm does not answer within 8 s", late=True)
    async with watching(tmp_path) as watched:
        watched.answer = late
        await watched.until(lambda: watched.asked > 4)
        assert [state.problem for state in watched.states] == [""]
        monkeypatch.setattr(subject, "_STARTING_SECONDS", 0.0)
        await watched.until(lambda: watched.state.problem == late.problem)
