"""The runner of the suite and its session of pytest: whoever ends the one, the other ends, too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from lab.settings import CHECKOUT
from tests.runner.process_group import run_group

RUNNER: Final = """
import sys
from lab.command_line import exit_code
from tests.runner.process_group import run_group
sys.exit(exit_code("tests", lambda: run_group([sys.executable, "-c", sys.argv[1]], 60)))
"""
PYTEST: Final = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    Path("ready").write_text(str(os.getpid()))
    time.sleep(60)
except KeyboardInterrupt:
    Path("interrupted").touch()
    {then}
    Path("pods-removed").touch()
    sys.exit(2)
"""
REMOVE: Final = "time.sleep(0.2)"
HANG: Final = "time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_runner_that_is_interrupted_waits_until_its_session_has_removed_the_pods(
    tmp_path: Path, number: signal.Signals
) -> None:
    with _runner(tmp_path, PYTEST.format(then=REMOVE)) as runner:
        _until(tmp_path / "ready")
        runner.send_signal(number)
        _, said = runner.communicate(timeout=30)
    assert runner.returncode == 130
    assert (tmp_path / "pods-removed").exists()
    assert "interrupted: the tests remove their pods" in said
    assert "Traceback" not in said


def test_a_second_interruption_kills_a_session_that_hangs(tmp_path: Path) -> None:
    with _runner(tmp_path, PYTEST.format(then=HANG)) as runner:
        _until(tmp_path / "ready")
        runner.send_signal(signal.SIGINT)
        _until(tmp_path / "interrupted")
        runner.send_signal(signal.SIGINT)
        _, said = runner.communicate(timeout=30)
    assert runner.returncode == 130
    assert not (tmp_path / "pods-removed").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "ready").read_text()), 0)
    assert "Traceback" not in said


def test_a_session_over_its_limit_is_interrupted(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_group(["sleep", "60"], 0.1) == -signal.SIGINT
    assert "the tests exceed their limit of 0.1 s and are interrupted" in capfd.readouterr().err


@contextmanager
def _runner(folder: Path, program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a session of that program, in a process of its own; kill both at the end."""
    command = [sys.executable, "-c", RUNNER, program]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as runner:
        try:
            yield runner
        finally:
            runner.kill()
            with suppress(ProcessLookupError, FileNotFoundError, ValueError):
                os.killpg(int((folder / "ready").read_text()), signal.SIGKILL)


def _until(file: Path) -> None:
    end = time.monotonic() + 30
    while not (file.exists() and (file.name != "ready" or file.read_text())):
        assert time.monotonic() < end, f"there is no {file.name}"
        time.sleep(0.01)
