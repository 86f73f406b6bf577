"""The account of a session's time, test by test: build/test-times.json, and the tables of `make test-times`.

The file is one JSON object:
    session: began (ISO 8601), seconds (wall), workers, cores, machine_busy (share of all cores' time, from /proc/stat)
    tests: by id: part, outcome, worker, began (seconds from the session's begin), wall, processor, waiting
        (wall - processor, at least 0), phases (seconds by phase, see lab/phases.py; `other` is the rest of the wall)
All are seconds. `processor` covers the test's own process and the programs that it ran and that have ended (kubectl,
docker, condor_submit); what pods and the node's daemons compute is in `machine_busy` only. The time of a fixture is
that of the test that set it up or tore it down.
"""

import json
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from lab import phases

KEY: Final = "k8spilot times"
"""Name of the report's property that carries the figures from a worker."""
OTHER: Final = "other"


@dataclass
class TestTime:
    """Times of one test, in seconds."""

    __test__ = False

    part: str
    worker: str
    began: float
    outcome: str = "passed"
    wall: float = 0.0
    processor: float = 0.0
    waiting: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)


class Meter:
    """In the process that runs tests: measures each of a test's steps (setup, call, teardown)."""

    def __init__(self) -> None:
        self._processor = processor_seconds()

    def measure(self, report: pytest.TestReport, part: str) -> None:
        """Add the figures since the last call to a report, as a property of it."""
        now = processor_seconds()
        spent, self._processor = now - self._processor, now
        figures = {"part": part, "processor": round(spent, 3), "phases": phases.take()}
        report.user_properties.append((KEY, json.dumps(figures)))


class Account:
    """In the process that gets all reports: adds them up, and writes the file."""

    def __init__(self, target: Path, workers: int) -> None:
        self._target = target
        self._workers = workers
        self._tests: dict[str, TestTime] = {}
        self._wall, self._clock = time.time(), time.monotonic()
        self._machine = _machine_ticks()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one step of a test."""
        text = next((str(value) for name, value in report.user_properties if name == KEY), None)
        if text is None:
            return
        report.user_properties = [one for one in report.user_properties if one[0] != KEY]
        figures = json.loads(text)
        worker = str(getattr(report, "worker_id", "main"))
        began = max(0.0, report.start - self._wall)
        test = self._tests.setdefault(report.nodeid, TestTime(figures["part"], worker, round(began, 2)))
        if report.outcome != "passed" and test.outcome != "failed":
            test.outcome = report.outcome
        test.wall += report.duration
        test.processor += figures["processor"]
        for name, seconds in figures["phases"].items():
            test.phases[name] = test.phases.get(name, 0.0) + seconds

    def pytest_sessionfinish(self) -> None:
        """Write the file, through another one: a session that is ended here leaves the former file."""
        if not self._tests:
            return
        for test in self._tests.values():
            test.waiting = max(0.0, test.wall - test.processor)
            test.phases[OTHER] = max(0.0, test.wall - sum(test.phases.values()))
        busy, all_ticks = (new - old for new, old in zip(_machine_ticks(), self._machine, strict=True))
        session = {
            "began": datetime.fromtimestamp(self._wall, UTC).isoformat(timespec="seconds"),
            "seconds": time.monotonic() - self._clock,
            "workers": self._workers,
            "cores": os.cpu_count(),
            "machine_busy": busy / max(1, all_ticks),
        }
        tests = {name: asdict(test) for name, test in sorted(self._tests.items())}
        self._target.parent.mkdir(parents=True, exist_ok=True)
        part = self._target.with_suffix(".part")
        part.write_text(json.dumps(_rounded({"session": session, "tests": tests}), indent=1) + "\n")
        part.replace(self._target)


def processor_seconds() -> float:
    """Return the processor time of this process, and of the programs that it ran and that have ended, in seconds."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def read(source: Path) -> Mapping[str, Any]:
    """Read the file of a session; without tests if there is none."""
    try:
        found: dict[str, Any] = json.loads(source.read_text())
    except (OSError, ValueError):
        return {"session": {}, "tests": {}}
    return found


def _machine_ticks() -> tuple[int, int]:
    """Clock ticks of all cores since boot: busy ones, and all (proc_stat(5): idle and iowait are the others)."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return value
