"""HTCondor's logs in the pilot's own."""

import asyncio
import logging
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from k8spilot.condor.daemons import logs
from k8spilot.condor.daemons.logs import copy_logs, end_of_startd, masked, startd_has_ended, startd_runs
from k8spilot.condor.folders import Folders
from tests.unit.observed_follower import observe_followers
from tests.waiting import eventually

END = "The STARTD (pid 36) exited with status"


@pytest.fixture
async def handled_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator["asyncio.Queue[tuple[str, str]]"]:
    lines: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    folders = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    folders.log.mkdir(parents=True)
    (folders.log / "MasterLog").write_text("of the last time\n")

    async def handle_line(log: str, line: str) -> None:
        lines.put_nowait((log, line))

    is_waiting = observe_followers(monkeypatch)
    task = asyncio.create_task(copy_logs(folders, handle_line))
    await eventually(is_waiting)
    yield lines
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_new_lines_are_told_under_their_daemons_names(
    handled_lines: "asyncio.Queue[tuple[str, str]]", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = tmp_path / "var/log/condor"
    for name, text in (("StartLog", "x" * 100_000), ("MasterLog", "one"), ("StartLog", "two")):
        with (log / name).open("a") as file:
            file.write(text + "\n")
        told = ""
        async with asyncio.timeout(10):
            while len(told) < len(text):  # a line that is too long comes in parts
                found = await handled_lines.get()
                assert found[0] == name
                told += found[1]
        assert told == text
    assert ("condor.master", logging.INFO, "one") in caplog.record_tuples
    assert ("condor.startd", logging.INFO, "two") in caplog.record_tuples
    assert "of the last time" not in caplog.text


async def test_a_line_has_htcondors_severity_and_one_time(
    handled_lines: "asyncio.Queue[tuple[str, str]]", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    head = "11/25/26 13:39:32.820 (pid:35)"
    lines = [
        f"{head} (D_ALWAYS) slot1: Remote owner is alice@pool",
        f"{head} (D_ALWAYS) slot1: Remote job ID is 10.0",
        f"{head} (D_ALWAYS) slot1: State change: claim-activation protocol successful, Starter 79",
        f"{head} (D_ERROR) It fails",
        f"{head} (D_ALWAYS) Starter pid 79 exited with status 0",
        f"{head} (D_ALWAYS) shutdown graceful",
    ]
    (tmp_path / "var/log/condor/StartLog").write_text("".join(f"{line}\n" for line in lines))
    async with asyncio.timeout(10):
        assert [await handled_lines.get() for _ in lines] == [("StartLog", line) for line in lines]
    told = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    assert told[-5:] == [
        ("condor.startd", "DEBUG", "slot1: State change: claim-activation protocol successful, Starter 79"),
        ("condor.startd", "ERROR", "It fails"),
        ("condor.startd", "DEBUG", "Starter pid 79 exited with status 0"),
        (
            "condor.startd",
            "INFO",
            "Job 10.0 of alice@pool left the slot after 0 s: its starter exited with status 0.",
        ),
        ("condor.startd", "INFO", "shutdown graceful"),
    ]


async def test_the_last_lines_before_the_end_are_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    folders.log.mkdir(parents=True)
    (folders.log / "MasterLog").write_text("of the last time\n")
    handled: list[tuple[str, str]] = []

    async def handle_line(log: str, line: str) -> None:
        handled.append((log, line))

    is_waiting = observe_followers(monkeypatch)
    ending = asyncio.Event()
    following = asyncio.create_task(copy_logs(folders, handle_line, ending=ending))
    await eventually(is_waiting)
    for name, lines in (("MasterLog", "one\ntwo\n"), ("StartLog", "three\n")):
        with (folders.log / name).open("a") as file:
            file.write(lines)
    ending.set()
    async with asyncio.timeout(5):
        await following
    assert sorted(handled) == [("MasterLog", "one"), ("MasterLog", "two"), ("StartLog", "three")]


CLAIM = "<10.1.2.3:9618?addrs=10.1.2.3-9618&alias=x.y>#1764000000#12#"
SESSION = '[Encryption="YES";Integrity="YES";CryptoMethods="AES,BLOWFISH";]'


@pytest.mark.parametrize("secret", [f"{SESSION}750df7ab01", "750df7ab01", SESSION])
def test_the_secret_part_of_a_claim_is_not_copied(secret: str) -> None:
    line = f"ClaimId ({CLAIM}{secret}) and GlobalJobId (x#1.0#2) not found"
    assert masked(line) == f"ClaimId ({CLAIM}...) and GlobalJobId (x#1.0#2) not found"


def test_a_claim_that_htcondor_has_masked_itself_stays_as_it_is() -> None:
    line = f"slot1: Called deactivate_claim ({CLAIM}...) of job 1.0#3"
    assert masked(line) == line


async def test_a_line_that_looks_like_the_heading_of_another_log_is_one_of_its_own(
    handled_lines: "asyncio.Queue[tuple[str, str]]", tmp_path: Path
) -> None:
    log = tmp_path / "var/log/condor"
    lines = [f"==> {log / 'MasterLog'} <==", "The STARTD (pid 1) exited with status 0"]
    (log / "StartLog").write_text("".join(f"{line}\n" for line in lines))
    async with asyncio.timeout(10):
        assert [await handled_lines.get() for _ in lines] == [("StartLog", line) for line in lines]


async def test_an_engine_that_follows_one_that_died_reads_what_was_logged_in_between(tmp_path: Path) -> None:
    folders = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    folders.log.mkdir(parents=True)
    (folders.log / "MasterLog").write_text("of the last time\n")
    lines: asyncio.Queue[str] = asyncio.Queue()

    async def handle_line(_log: str, line: str) -> None:
        lines.put_nowait(line)

    task = asyncio.create_task(copy_logs(folders, handle_line, include_existing=True))
    async with asyncio.timeout(10):
        assert await lines.get() == "of the last time"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_is_logged_while_no_thread_can_be_started_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job can have taken all processes of the pod, threads among them."""
    folders = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    folders.log.mkdir(parents=True)
    (folders.log / "MasterLog").touch()
    lines: asyncio.Queue[str] = asyncio.Queue()
    refused, may_start = asyncio.Event(), False
    loop = asyncio.get_running_loop()
    in_thread = loop.run_in_executor

    def run_in_executor(*arguments: Any) -> "asyncio.Future[Any]":
        if may_start:
            return in_thread(*arguments)
        refused.set()
        raise RuntimeError("can't start new thread")

    async def handle_line(_log: str, line: str) -> None:
        lines.put_nowait(line)

    monkeypatch.setattr(loop, "run_in_executor", run_in_executor)
    monkeypatch.setattr(logs, "_RETRY_SECONDS", 0.2)
    task = asyncio.create_task(copy_logs(folders, handle_line))
    async with asyncio.timeout(10):
        await refused.wait()
        (folders.log / "MasterLog").write_text(f"{END} 99\n")
        may_start = True
        assert await lines.get() == f"{END} 99"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("log", "words", "ended"),
    [
        ("MasterLog", "exited with status 99 (daemon will not restart automatically)", 99),
        ("MasterLog", "exited with status 0", 0),
        ("MasterLog", "exited with status 44", None),
        ("MasterLog", "died due to signal 9 (Killed)", None),
        ("StartLog", "exited with status 0", None),
    ],
)
def test_a_startd_that_has_ended_by_itself_is_told_from_one_that_crashed(
    log: str, words: str, ended: int | None
) -> None:
    assert end_of_startd(log, f"11/21/26 21:01:31.030 (pid:33) The STARTD (pid 36) {words}") == ended


@pytest.mark.parametrize("status", [0, 99])
async def test_a_startd_that_no_other_follows_has_ended_for_good(status: int) -> None:
    assert await startd_has_ended("MasterLog", f"{END} {status}", os.getpid(), seconds=0.1)


async def test_a_startd_that_another_follows_has_not_ended_for_good(tmp_path: Path) -> None:
    looking = asyncio.create_task(startd_has_ended("MasterLog", f"{END} 0", os.getpid(), seconds=0.5))
    await asyncio.sleep(0.1)
    with _startd(tmp_path, of="condor_master"):
        assert not await looking


async def test_a_startd_that_runs_has_not_ended_whatever_the_log_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _startd(tmp_path, of="condor_master"):
        assert not await startd_has_ended("MasterLog", f"{END} 99", os.getpid())
    assert "may be forged" in caplog.text


@contextmanager
def _startd(tmp_path: Path, *, of: str) -> Iterator[Callable[[], None]]:
    """A startd that is the child of one that is called `of`, which is a child of this process; what ends it."""
    for name, program in ((of, "/bin/sh"), ("condor_startd", "/bin/sleep")):
        shutil.copy(program, tmp_path / name)
    script = f"{tmp_path}/condor_startd 60 & echo begun; read word; kill $!; wait; echo ended; read word"
    with subprocess.Popen([tmp_path / of, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        deadline = time.monotonic() + 10
        while [one.name() for one in psutil.Process(process.pid).children()] != ["condor_startd"]:
            assert time.monotonic() < deadline, "the shell's child does not become the startd"

        def end() -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ended\n"

        yield end
        process.stdin.close()


def test_a_startd_runs_until_it_has_ended(tmp_path: Path) -> None:
    with _startd(tmp_path, of="condor_master") as end:
        assert startd_runs(os.getpid())
        end()
        assert not startd_runs(os.getpid())


def test_what_is_only_called_so_is_no_startd(tmp_path: Path) -> None:
    with _startd(tmp_path, of="evil"):
        assert not startd_runs(os.getpid())
