"""Programs in process groups of their own: the session of the tests ends when their runner is interrupted."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from lab.process_group import EXCEEDED
from lab.settings import CHECKOUT

pytestmark = pytest.mark.slow

RUNNER: Final = """
import sys
from lab.command_line import exit_code
from lab.process_group import run_group
program, limit, kill_seconds = sys.argv[1:]
session = [sys.executable, "-c", program]
sys.exit(exit_code("tests", lambda: run_group(session, float(limit), kill_seconds=float(kill_seconds))))
"""
SESSION: Final = """
import os, subprocess, sys, time
from pathlib import Path
try:
    worker = subprocess.Popen(["sh", "-c", "trap '' INT; echo >worker; exec sleep 300"])
    Path("worker-pid").write_text(str(worker.pid))
    while not Path("worker").exists():
        time.sleep(0.01)
    Path("new").write_text(str(os.getpid()))
    Path("new").rename("ready")
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep({seconds})
    Path("pods-removed").touch()
    sys.exit(2)
"""
"""A session of pytest that removes its pods when it is interrupted, with a worker that ignores the interruption."""
TIDY: Final = SESSION.format(seconds=0.2)
HANGING: Final = SESSION.format(seconds=300)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interrupted_runner_waits_until_its_session_has_removed_the_pods(
    tmp_path: Path, number: signal.Signals
) -> None:
    with _runner(tmp_path, TIDY) as runner:
        runner.send_signal(number)
        _, said = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert (tmp_path / "pods-removed").exists()
    assert "interrupted: waiting up to 60 s until all is cleaned up" in said
    assert "Traceback" not in said
    _gone(tmp_path)


def test_a_runner_whose_terminal_is_gone_has_the_pods_removed(tmp_path: Path) -> None:
    with _runner(tmp_path, TIDY) as runner:
        assert runner.stderr is not None
        runner.stderr.close()
        runner.send_signal(signal.SIGHUP)
        runner.wait(timeout=60)
    assert (tmp_path / "pods-removed").exists()
    _gone(tmp_path)


def test_a_second_interruption_kills_a_session_that_hangs(tmp_path: Path) -> None:
    with _runner(tmp_path, HANGING) as runner:
        while runner.poll() is None:
            runner.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, said = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert not (tmp_path / "pods-removed").exists()
    assert "Traceback" not in said
    _gone(tmp_path)


def test_a_session_that_hangs_is_killed_some_time_after_its_interruption(tmp_path: Path) -> None:
    with _runner(tmp_path, HANGING, kill_seconds=1.1) as runner:
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=60)
    assert runner.returncode == 130
    _gone(tmp_path)


def test_a_session_over_its_limit_is_interrupted_and_fails() -> None:
    command = [sys.executable, "-c", RUNNER, "import time; time.sleep(300)", "0.1", "60"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == EXCEEDED
    assert "the time limit is exceeded: waiting up to 60 s until all is cleaned up" in done.stderr


@contextmanager
def _runner(folder: Path, session: str, *, kill_seconds: float = 60) -> Iterator[subprocess.Popen[str]]:
    """Run a runner, and yield it when its session is ready; kill both at the end."""
    command = [sys.executable, "-c", RUNNER, session, "300", str(kill_seconds)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as runner:
        try:
            end = time.monotonic() + 60
            while not (folder / "ready").exists():
                assert time.monotonic() < end, "the session is not ready"
                assert runner.poll() is None, "the runner has ended"
                time.sleep(0.01)
            yield runner
        finally:
            runner.kill()
            with suppress(ProcessLookupError, FileNotFoundError):
                os.killpg(int((folder / "ready").read_text()), signal.SIGKILL)


def _gone(folder: Path) -> None:
    """Check that session and worker have ended, or do so within a minute."""
    pids = [int((folder / name).read_text()) for name in ("ready", "worker-pid")]
    end = time.monotonic() + 60
    while living := [pid for pid in pids if _lives(pid)]:
        assert time.monotonic() < end, f"{living} live on"
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
