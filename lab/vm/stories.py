"""Steps of `make test-vm` in the machine: the demo, and the tests whose results depend on the kind of cluster."""

import shlex
import sys
import time
from collections.abc import Sequence
from typing import Final

from lab.errors import LabError
from lab.matrix import SUITES, outcome
from lab.progress import clock
from lab.settings import CHECKOUT, Settings
from lab.vm import emulator, place
from lab.vm.emulator import EndedError, Machine

BUILD: Final = CHECKOUT / "build/vm"
"""Reports and logs, here and in the machine."""
REPORT: Final = "stories.xml"
MARKER: Final = "cluster"
WORKERS: Final = 2
"""Number of tests at a time. The machine's processors are emulated."""


def run(settings: Settings, machine: Machine, options: Sequence[str]) -> int:
    """Run the demo and the stories, or only the tests that `options` of pytest choose; return 0 if all have passed.

    Raises EndedError: the machine has ended meanwhile.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / REPORT).unlink(missing_ok=True)
    chosen = ["--", *options] if options else ["--part", MARKER, "--"]
    tests = [sys.executable, "-m", "tests.runner", "all", "--workers", str(WORKERS), *chosen]
    try:
        demo = 0 if options else _step(machine, "make demo", ["make", "demo"])
        status = _step(machine, "the stories", [*tests, f"--junitxml={BUILD / REPORT}"])
    finally:  # also where it is interrupted
        _collect(machine, settings)
    try:
        emulator.check(settings)
    except EndedError as problem:
        raise EndedError(f"{problem}; copies of this log and of the console's: {BUILD / 'logs'}") from problem
    words, is_good = outcome(BUILD / REPORT)
    suites = ", ".join(f"{suite}: {outcome(BUILD / REPORT, suite)[0]}" for suite in SUITES)
    print(f"{words} ({suites}; the report: {BUILD / REPORT})", flush=True)
    return 0 if demo == 0 and status == 0 and is_good else 1


def _step(machine: Machine, title: str, command: Sequence[str]) -> int:
    began = time.monotonic()
    status = machine.follow(place.script(f"mkdir -p {BUILD} && {shlex.join(command)}", machine))
    print(f"{title}: status {status} after {clock(time.monotonic() - began)}", flush=True)
    return status


def _collect(machine: Machine, settings: Settings) -> None:
    """Fetch the reports, and the logs of the lab's daemons in the machine and of the machine itself."""
    emulator.keep_logs(settings, BUILD / "logs")
    try:
        emulator.check(settings)
    except EndedError:  # `run` tells it
        return
    for source, target in ((BUILD, BUILD), (settings.logs, BUILD / "logs")):
        try:
            machine.fetch(source, target)
        except LabError as problem:  # a machine that is broken says more by what came before
            print(f"lab.vm: {problem}", file=sys.stderr)
