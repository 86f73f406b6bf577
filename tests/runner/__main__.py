"""Run the test suite: `python -m tests.runner all`, `quick`, `many`, or show what the last run took: `times`.

`all` and `quick` bring the lab up beside the tests that need none. The exit status is pytest's: 0 only if all is well.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lab.command_line import exit_code
from lab.patience import scaled
from lab.process_group import run_group
from lab.settings import CHECKOUT
from tests.runner import ORDERS, plugin, table, times
from tests.runner.tiers import LANDING

BUILD: Final = CHECKOUT / "build"

WORKERS: Final = 6
"""On two cores. Tests with jobs wait for most of their time."""
SESSION_SECONDS: Final = 4200
"""Limit of a session. `make test` takes less than half of it on two slow cores, all tests two thirds."""
QUICK_SECONDS: Final = 600
END_SECONDS: Final = 200
"""After the session's limit: for a test that cannot be interrupted, and for the removal of pods."""
QUICK_ORDERS: Final = 5
"""`all` has 25 of these sequences of events, and the random inputs of tests/fuzz."""
QUICK: Final = "quick or not (slow or landing or node or e2e or oracle or attack or gpu or disruptive)"


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.runner", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (("all", "every test"), ("quick", "what to run before each commit"), ("many", "many runs")):
        command = commands.add_parser(name, help=words)
        command.add_argument("--workers", type=int, default=WORKERS)
        command.add_argument("--seconds", type=int, default=SESSION_SECONDS, help="limit of a session, but of `quick`")
        command.add_argument("--part", default="", help="a marker expression, such as `disruptive`")
        command.add_argument("--times", type=int, default=10, help="of `many`: how often")
        command.add_argument("--everything", action="store_true", help="what is left to CI, too")
        command.add_argument("options", nargs="*", help="of pytest, after `--`")
    commands.add_parser("times", help="where the time of the last run went").add_argument(
        "file", nargs="?", type=Path, default=plugin.TIMES
    )
    asked = parser.parse_args()
    if asked.command == "times":
        return _show_times(asked.file)
    if asked.command == "many":
        return _many(asked)
    if asked.command == "quick":
        os.environ.setdefault(ORDERS, str(QUICK_ORDERS))
        own = ["-m", QUICK, "--ignore=tests/fuzz", _times_in(BUILD / "test-quick-times.json")]
        return _session(asked.workers, QUICK_SECONDS, [*own, *asked.options])
    # The scheduler reads the times of the last whole runs: a part of one must not replace them.
    target = BUILD / "test-part-times.json"
    if not (asked.options or asked.part):
        os.environ[plugin.WHOLE] = "1"
        target = plugin.ALL_TIMES if asked.everything else plugin.TIMES
        asked.part = "" if asked.everything else f"not {LANDING}"
    own = [*_only(asked.part), _times_in(target)]
    return _session(asked.workers, asked.seconds, [*own, *asked.options])


def _show_times(file: Path) -> int:
    if not (facts := times.read(file))["tests"]:
        print(f"{file} has no times of tests: run `make test` first", file=sys.stderr)
        return 1
    table.show_times(facts)
    return 0


def _session(workers: int, seconds: int, options: Sequence[str], log: Path | None = None) -> int:
    """Run pytest once, with the lab beside it if a test needs it; return its exit status.

    It ends itself after scaled `seconds`, and is interrupted END_SECONDS later. Raises KeyboardInterrupt after the
    session's end if this process was interrupted.
    """
    seconds = round(scaled(seconds))
    own = ["--numprocesses", str(workers), "--session-timeout", str(seconds), "--durations", "15", *options]
    command = [sys.executable, "-u", "-m", "pytest", *own]  # what it says is read while it runs
    with tempfile.TemporaryDirectory(prefix="k8spilot-lab-up-") as folder, ExitStack() as files:
        # Each worker imports all tests: with their bytecode kept that takes 3.6 s of a core, and 8.6 s without.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(BUILD / "pycache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment[plugin.LAB_OUTCOME] = str(Path(folder) / "outcome.json")
        output = None if log is None else files.enter_context(log.open("wb"))
        errors = None if log is None else subprocess.STDOUT
        return run_group(command, seconds + END_SECONDS, cwd=CHECKOUT, env=environment, stdout=output, stderr=errors)


def _many(asked: argparse.Namespace) -> int:
    """Run the suite, or a part of it, many times; never stop at a failure; print which test failed in which runs."""
    folder = BUILD / "test-many" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    folder.mkdir(parents=True)
    failed: defaultdict[str, list[int]] = defaultdict(list)
    statuses = []
    part = asked.part or ("" if asked.everything or asked.options else f"not {LANDING}")
    try:
        for run in range(1, asked.times + 1):
            log, junit = folder / f"{run}.log", folder / f"{run}.xml"
            own = [f"--junitxml={junit}", _times_in(folder / f"{run}.json"), *asked.options]
            statuses.append(_session(asked.workers, asked.seconds, [*_only(part), *own], log))
            for test in _failures(junit):
                failed[test].append(run)
            last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
            print(f"run {run} of {asked.times}: status {statuses[-1]}: {last}", flush=True)
    finally:  # an interrupted series shows its whole runs
        good = statuses.count(0)
        runs = sorted(failed.items(), key=lambda one: (-len(one[1]), one[0]))
        if runs:
            rows = [(name, str(len(found)), ", ".join(map(str, found))) for name, found in runs]
            table.show("Failures", ("test", "times", "runs"), rows)
        print(f"{good} of {len(statuses)} runs without a failure ({shlex.quote(str(folder))})")
    return 0 if good == asked.times else 1


def _times_in(file: Path) -> str:
    """Return the option that names the file of times, in one word: pytest would collect a path that stands alone."""
    return f"--test-times={file}"


def _only(part: str) -> list[str]:
    return ["-m", part] if part else []


def _failures(junit: Path) -> list[str]:
    """Names of the tests that failed, or whose fixtures did; the session itself where there is no report."""
    try:
        cases = ET.parse(junit).getroot().iter("testcase")  # noqa: S314 -- pytest wrote it a moment ago
    except (OSError, ET.ParseError):
        return ["the session ended without a report"]
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


if __name__ == "__main__":
    sys.exit(exit_code("tests", main))
