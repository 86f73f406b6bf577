"""Lines of log files, as they are written: through rotation, truncation, and without inotify(7)."""

import asyncio
import errno
import gc
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from asyncinotify import Inotify

from k8spilot.condor.daemons import log_follower
from k8spilot.condor.daemons.log_follower import LogFollower
from tests.unit.observed_follower import ObservedFollower
from tests.waiting import eventually

NAME = "StartLog"
Lines = asyncio.Queue[bytes]


@asynccontextmanager
async def following(folder: Path, before: int = 0) -> AsyncIterator[Lines]:
    """The lines of the log in a folder; what is there already has been passed by."""
    lines: Lines = asyncio.Queue()
    with ObservedFollower(folder, [NAME]) as follower:
        changes = asyncio.create_task(follower.run())

        async def copy() -> None:
            async for line in follower.lines(NAME, before):
                lines.put_nowait(line)

        copies = asyncio.create_task(copy())
        try:
            await eventually(lambda: follower.waits)
            yield lines
        finally:
            for task in (changes, copies):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def take(lines: Lines, count: int = 1, seconds: float = 10) -> list[bytes]:
    """The next lines."""
    async with asyncio.timeout(seconds):
        return [await lines.get() for _ in range(count)]


@pytest.fixture(params=["inotify", "no instance", "no watch"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log with a line in it; with what the kernel has no room for."""
    if request.param == "no instance":

        def refused(*_: Any, **__: Any) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(Inotify, "__init__", refused)
        monkeypatch.setattr(log_follower, "_POLL_SECONDS", 0.05)
    elif request.param == "no watch":
        add_watch = Inotify.add_watch

        def for_folders(inotify: Any, path: Path, mask: Any) -> Any:
            if not path.is_dir():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return add_watch(inotify, path, mask)

        monkeypatch.setattr(Inotify, "add_watch", for_folders)
    path = tmp_path / NAME
    path.write_bytes(b"old\n")
    return path


def append(log: Path, content: bytes) -> None:
    """As HTCondor does."""
    with log.open("ab") as file:
        file.write(content)


async def test_lines_come_as_they_are_written(log: Path) -> None:
    async with following(log.parent) as lines:
        append(log, b"one\ntwo\n")
        assert await take(lines, 2) == [b"one", b"two"]
        append(log, b"three\n")
        assert await take(lines) == [b"three"]


async def test_a_log_that_comes_later_is_new_as_a_whole(log: Path) -> None:
    log.unlink()
    async with following(log.parent, before=1) as lines:
        append(log, b"one\n")
        assert await take(lines) == [b"one"]


async def test_the_end_of_a_rotated_log_comes_before_the_new_log(log: Path) -> None:
    async with following(log.parent) as lines:
        for number in range(5):
            append(log, b"last of %d\n" % number)
            log.rename(log.with_suffix(".old"))
            append(log, b"first of %d\n" % (number + 1))
            assert await take(lines, 2) == [b"last of %d" % number, b"first of %d" % (number + 1)]
        append(log, b"next\n")
        assert await take(lines) == [b"next"]


async def test_a_log_that_is_removed_and_made_again_is_followed(log: Path) -> None:
    async with following(log.parent) as lines:
        log.unlink()
        await asyncio.sleep(0.2)
        assert lines.empty()
        append(log, b"one\n")
        assert await take(lines) == [b"one"]


async def test_a_truncated_log_is_read_from_its_beginning(log: Path) -> None:
    async with following(log.parent) as lines:
        append(log, b"a line and a half\nhalf")
        assert await take(lines) == [b"a line and a half"]
        log.write_bytes(b"new\n")
        assert await take(lines) == [b"new"]


async def test_a_line_is_whole_however_it_is_written(log: Path) -> None:
    async with following(log.parent) as lines:
        for piece in (b"on", b"e\nt", b"wo"):
            append(log, piece)
            await asyncio.sleep(0.1)
        assert await take(lines) == [b"one"]
        assert lines.empty()
        append(log, b"\n")
        assert await take(lines) == [b"two"]


async def test_a_line_without_end_comes_in_parts(log: Path) -> None:
    async with following(log.parent) as lines:
        append(log, b"x" * 1_000_000)
        append(log, b"\nnext\n")
        told = b""
        while len(told) < 1_000_000:
            (part,) = await take(lines)
            assert len(part) <= 128 * 1024
            told += part
        assert told == b"x" * 1_000_000
        assert await take(lines) in ([b""], [b"next"])


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", []),
        (b"one\n", [b"one"]),
        (b"one\ntwo\nthree\n", [b"two", b"three"]),
        (b"one\ntwo\nthree\nhalf", [b"two", b"three"]),
        (b"x" * 100_000 + b"\ntwo\n", [b"two"]),
    ],
)
async def test_the_last_lines_that_are_there_can_come_first(tmp_path: Path, content: bytes, found: list[bytes]) -> None:
    (tmp_path / NAME).write_bytes(content)
    async with following(tmp_path, before=2) as lines:
        assert await take(lines, len(found)) == found
        assert lines.empty()
        append(tmp_path / NAME, b" more\n")
        assert (await take(lines))[0].endswith(b" more")


async def test_a_folder_that_cannot_be_watched_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_POLL_SECONDS", 0.05)
    async with following(tmp_path / "log") as lines:
        (tmp_path / "log").mkdir()
        append(tmp_path / "log" / NAME, b"one\n")
        assert await take(lines) == [b"one"]


async def test_nothing_is_lost_of_much_that_is_written_fast_through_rotations(tmp_path: Path) -> None:
    count, each, line = 10, 5_000, b"11/25/26 00:00:00.000 (pid:36) slot1: State change: " + b"x" * 150
    log = tmp_path / NAME

    def write(file: IO[bytes], number: int) -> None:
        file.writelines(b"%d %s\n" % (at, line) for at in range(number * each, (number + 1) * each))

    async with following(tmp_path) as lines:
        for number in range(count):  # each is rotated when it is read to its end at the latest: HTCondor keeps one
            with log.open("ab") as file:
                await asyncio.to_thread(write, file, number)
            log.rename(tmp_path / "StartLog.old") if number % 2 else log.touch()
            told = await take(lines, each, 60)
            assert told == [b"%d %s" % (at, line) for at in range(number * each, (number + 1) * each)]


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(12))
async def test_no_file_stays_open_when_it_is_cancelled(tmp_path: Path, steps: int) -> None:
    """Wherever it is: pytest fails for a file that nothing closes."""
    log = tmp_path / NAME
    log.write_bytes(b"old\n")
    with LogFollower(tmp_path, [NAME]) as follower:
        reading = asyncio.ensure_future(anext(aiter(follower.lines(NAME))))
        for _ in range(steps):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        del reading
        gc.collect()


async def test_a_log_that_is_quiet_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    async with following(tmp_path):
        before = time.thread_time()
        append(tmp_path / "StarterLog", b"x" * 1000)
        await asyncio.sleep(1)
        assert time.thread_time() - before < 0.02
