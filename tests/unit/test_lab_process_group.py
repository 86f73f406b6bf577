"""Programs in process groups of their own: the session of the tests ends when their runner is interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from lab import processes
from lab.patience import scaled
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
    worker = subprocess.Popen(["sh", "-c", "trap '' INT; echo ready; exec sleep 300"], stdout=subprocess.PIPE)
    worker.stdout.readline()
    print(os.getpid(), worker.pid, flush=True)
    while True:  # Python handles a signal that comes just before a sleep only after it
        time.sleep(0.05)
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
        runner.process.send_signal(number)
        said = runner.end()
    assert runner.process.returncode == 130
    assert (tmp_path / "pods-removed").exists()
    assert "interrupted: waiting up to 60 s until all is cleaned up" in said
    assert "Traceback" not in said


def test_a_runner_whose_terminal_is_gone_has_the_pods_removed(tmp_path: Path) -> None:
    with _runner(tmp_path, TIDY) as runner:
        assert runner.process.stderr is not None
        runner.process.stderr.close()
        runner.process.send_signal(signal.SIGHUP)
        runner.process.wait(timeout=scaled(60))
        assert processes.wait(runner.session, scaled(60)) == []
    assert (tmp_path / "pods-removed").exists()


def test_a_second_interruption_kills_a_session_that_hangs(tmp_path: Path) -> None:
    with _runner(tmp_path, HANGING) as runner:
        # No signal comes after the session's end: one that comes while the runner exits changes its status.
        while processes.wait(runner.session[:1], 0):
            runner.process.send_signal(signal.SIGINT)
            processes.wait(runner.session[:1], 0.3)
        said = runner.end()
    assert runner.process.returncode == 130
    assert not (tmp_path / "pods-removed").exists()
    assert "Traceback" not in said


def test_a_session_that_hangs_is_killed_some_time_after_its_interruption(tmp_path: Path) -> None:
    with _runner(tmp_path, HANGING, kill_seconds=1.1) as runner:
        runner.process.send_signal(signal.SIGTERM)
        runner.end()
    assert runner.process.returncode == 130


def test_a_session_over_its_limit_is_interrupted_and_fails() -> None:
    command = [sys.executable, "-c", RUNNER, "import time; time.sleep(300)", "0.1", "60"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=scaled(120), check=False)
    assert done.returncode == EXCEEDED
    assert "the time limit is exceeded: waiting up to 60 s until all is cleaned up" in done.stderr


@dataclass
class Runner:
    """A process that runs a session, and the processes of the session."""

    process: subprocess.Popen[str]
    session: list[psutil.Process]

    def end(self) -> str:
        """Wait for the end of the runner; return its errors. Nothing of the session is left."""
        _, errors = self.process.communicate(timeout=scaled(60))
        assert processes.wait(self.session, scaled(60)) == []
        return errors


@contextmanager
def _runner(folder: Path, session: str, *, kill_seconds: float = 60) -> Iterator[Runner]:
    """Run a runner, and yield it when its session is ready; kill both at the end."""
    command = [sys.executable, "-c", RUNNER, session, "300", str(kill_seconds)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        found: list[psutil.Process] = []
        try:
            assert process.stdout is not None
            found += [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
            assert len(found) == 2, "the session is not ready"
            yield Runner(process, found)
        finally:
            process.kill()
            processes.end(found, grace_s=0)
