"""HTCondor's daemons are asked whether they answer, and ended when they do not."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8spilot.condor.daemons import liveness
from k8spilot.condor.daemons.liveness import JOB_LOG, LOG, SilenceLimits, end_hanging_daemons
from k8spilot.condor.folders import Folders

DAEMON = "import socket, sys, time\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
ADDRESS = (
    "open(sys.argv[1], 'w').write(f'<127.0.0.1:{s.getsockname()[1]}?addrs=127.0.0.1&noUDP>\\n$CondorVersion$\\n')\n"
)
ANSWERS = f"{DAEMON}{ADDRESS}while True: s.accept()[0].close()\n"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    found = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    found.log.mkdir(parents=True)
    return found


@pytest.fixture
def master(folders: Folders, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A program of that name, which answers."""
    program = tmp_path / "condor_master"
    shutil.copy(os.path.realpath("/usr/bin/python3"), program)
    with subprocess.Popen([program, "-c", ANSWERS, folders.log / ".master_address"]) as process:
        yield process
        process.kill()


async def _watch(folders: Folders, seconds: float = 1.0) -> tuple["asyncio.Task[None]", list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []

    async def handle_line(log: str, line: str) -> None:
        told.append((log, line))

    watching = end_hanging_daemons(folders, os.getpid(), handle_line, limits=SilenceLimits(seconds / 2, seconds))
    return asyncio.create_task(watching), told


@pytest.mark.slow
@pytest.mark.usefixtures("short")
async def test_a_daemon_that_answers_is_left_alone(
    folders: Folders, master: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_INTERVAL_SECONDS", 0.2)
    task, told = await _watch(folders, 4.0)  # one answer that is late does nothing yet
    await asyncio.sleep(3.5)
    assert (master.poll(), told) == (None, [])
    task.cancel()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is waited for for a moment."""
    monkeypatch.setattr("k8spilot.condor.daemons.liveness._ANSWER_SECONDS", 0.3)


@pytest.mark.usefixtures("short")
async def test_a_daemon_that_hangs_loses_its_job_and_is_killed_then(
    folders: Folders, master: "subprocess.Popen[bytes]"
) -> None:
    address = folders.log / ".master_address"
    async with asyncio.timeout(20):
        while not (address.exists() and address.read_text()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # takes connections, as the kernel does for a stopped process
        address.write_text(f"<127.0.0.1:{silent.getsockname()[1]}?addrs=x>\n")
        task, told = await _watch(folders)
        assert await asyncio.to_thread(master.wait, 20) == -9
    async with asyncio.timeout(5):
        while len(told) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert [log for log, _ in told] == [JOB_LOG, LOG], "its job is ended first, which may be what it hangs by"
    assert all("condor_master has not answered on its command port" in words for _, words in told)
    task.cancel()


@pytest.mark.slow
@pytest.mark.usefixtures("short")
async def test_a_daemon_is_not_silent_while_nobody_can_ask(
    folders: Folders, master: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the engine itself was held up, one answer that is late is one answer that is late."""
    answers = iter([True, False, *[True] * 100])

    async def answer(_: Path) -> bool:
        return next(answers)

    monkeypatch.setattr(liveness, "_FILES", {"condor_master": ".master_address"})
    monkeypatch.setattr(liveness, "_answers", answer)
    task, told = await _watch(folders, 2.0)
    await asyncio.sleep(0.6)
    time.sleep(2.5)  # noqa: ASYNC251 -- longer than a daemon may be silent
    await asyncio.sleep(1.0)
    assert (master.poll(), told) == (None, [])
    task.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "nonsense\n", "<127.0.0.1:1?addrs=x>\n"])
async def test_what_is_not_there_is_no_daemon_that_hangs(
    folders: Folders, master: "subprocess.Popen[bytes]", text: str
) -> None:
    """An address of a daemon that has ended, for one."""
    (folders.log / ".startd_address").write_text(text)
    task, told = await _watch(folders)
    await asyncio.sleep(1.2)
    assert (master.poll(), told) == (None, [])
    task.cancel()
