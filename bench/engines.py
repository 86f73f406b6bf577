"""The two servers of Docker's API that are compared: a pilot's engine and a dockerd. bench/inside.py drives them."""

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import dockerd, node, pilot
from lab.api import Lab
from lab.errors import LabError
from lab.settings import PILOT_NAMESPACE

PROGRAM = Path(__file__).with_name("inside.py")
_PATIENCE_S = 30.0
_ANSWER_S = 180.0
"""Time limit of an answer, longer than the engine's own longest one: that of a bind to an unavailable image."""
_END_S = 10.0


class Inside:
    """The program bench/inside.py, which runs until `close`."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: str) -> Any:
        """Send one line and return its answer. Raises LabError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise LabError(f"the benchmark's program has ended and cannot be asked to {' '.join(words)}") from error
        # Each request has an answer of one line, so nothing of it can remain in this side's buffer.
        if not select.select([self._process.stdout], [], [], _ANSWER_S)[0]:
            self._process.kill()
            raise LabError(f"the benchmark's program did not answer to {' '.join(words)} within {_ANSWER_S:.0f} s")
        answer = self._process.stdout.readline()
        if not answer:
            raise LabError(f"the benchmark's program ended when it was asked to {' '.join(words)}: see its error above")
        return json.loads(answer)

    def job(self, image: str) -> dict[str, float]:
        """Run one empty job; return its moments (see bench/inside.py)."""
        found: dict[str, float] = self.ask("job", image)
        return found

    def bind(self, image: str) -> float:
        """Bind and remove; return how many seconds the client waited for `create`."""
        return float(self.ask("bind", image))

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the last request may still be under way to a process that has ended
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def of_pilot(lab: Lab, name: str) -> Iterator[Inside]:
    """Deploy a pilot with the engine alone, and run the program in its container."""
    pilot.deploy(lab, name, {"K8SPILOT_SERVICES": "engine", "K8SPILOT_IDLE_AFTER_SECONDS": "3600"})
    try:
        _until_serving(lab, name)
        where = ("exec", "-i", name, "-n", PILOT_NAMESPACE, "-c", "pilot", "--", "/opt/k8spilot/bin/python", "-c")
        with _closing(Inside(*(str(part) for part in node.kubectl(lab.settings)), *where, PROGRAM.read_text())) as it:
            yield it
    finally:
        pilot.delete(lab, name)


@contextlib.contextmanager
def of_dockerd(lab: Lab) -> Iterator[Inside]:
    """Start the lab's dockerd, and run the program on this machine."""
    found = dockerd.ensure(lab.settings, lab.progress)
    with _closing(Inside(sys.executable, str(PROGRAM), str(found.socket))) as it:
        yield it


def log(lab: Lab, name: str) -> str:
    """Return the log of a pilot's engine."""
    return lab.kubectl("logs", name, "-n", PILOT_NAMESPACE, "-c", "pilot")


@contextlib.contextmanager
def _closing(program: Inside) -> Iterator[Inside]:
    try:
        yield program
    finally:
        program.close()


def _until_serving(lab: Lab, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while "Serving the Docker" not in log(lab, name):
        if time.monotonic() > deadline:
            raise LabError(f"the engine of pod {name} does not serve within {_PATIENCE_S:.0f} s; see its log")
        time.sleep(0.2)


def first_instruction(moments: dict[str, float]) -> Sequence[float]:
    """Return the seconds from the request for a job to its first instruction."""
    return [moments["first"] - moments["asked"]]


def told(moments: dict[str, float]) -> Sequence[float]:
    """Return the milliseconds from the payload's last output to the end of docker wait."""
    return [1000 * (moments["told"] - moments["last"])]
