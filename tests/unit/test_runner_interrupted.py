"""The workers of an interrupted session clean up to the end: a daemon that a test has stopped runs again."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from lab.patience import scaled
from tests import inner_session

pytestmark = pytest.mark.slow

SECONDS: Final = 7
"""execnet interrupts a worker 5 s after it was asked to end."""
TEST: Final = f"""
import time
from pathlib import Path
import pytest

@pytest.fixture
def daemon(tmp_path_factory):
    yield
    time.sleep({SECONDS})
    Path("runs again").touch()

def test_a_daemon_stops(daemon):
    Path("stopped").open("w").write("stopped")  # a FIFO: this process waits for its reader
    while True:  # Python handles a signal that comes just before a sleep only after it
        time.sleep(0.05)
"""


def test_the_workers_of_an_interrupted_session_have_time_to_clean_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stopped")
    command, environment = inner_session.prepare(tmp_path, TEST, "-n2")
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        process_group=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as session:
        try:
            assert (tmp_path / "stopped").read_text() == "stopped"
            os.killpg(session.pid, signal.SIGINT)
            said, _ = session.communicate(timeout=scaled(60))
        finally:
            session.kill()
    assert session.returncode == pytest.ExitCode.INTERRUPTED, said
    assert (tmp_path / "runs again").exists()
