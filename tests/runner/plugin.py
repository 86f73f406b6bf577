"""The plugin of pytest that tests/conftest.py registers: options, measurement, and the scheduler of pytest-xdist."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.settings import CHECKOUT
from tests.runner import groups, pilots, times
from tests.runner.scheduler import Scheduler

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

TIMES: Final = CHECKOUT / "build/test-times.json"
ALL_TIMES: Final = CHECKOUT / "build/test-all-times.json"
"""Of `make test ALL=1`."""
LAB_OUTCOME: Final = "K8SPILOT_TEST_LAB"
"""Names a file that says when the lab is up, or could not be brought up; `python -m tests.runner` sets it.

Where it is set, the lab is brought up beside the tests that need none, if there is a test that needs it.
"""
WHOLE: Final = "K8SPILOT_TEST_WHOLE"
"""Set where all tests run: then the lab builds the programs that some of them start on demand, before any test."""
PREFIX: Final = "K8SPILOT_TEST_PREFIX"
"""Names of pods have it in them: checkouts that share one lab set it."""
_FACTS: Final = "k8spilot_facts"
_LOOK_SECONDS: Final = 0.5


def add_options(parser: pytest.Parser) -> None:
    """The suite's own options."""
    own = parser.getgroup("k8spilot")
    own.addoption("--test-times", metavar="FILE", type=Path, help="write what each test took to FILE (JSON)")


class Runner:
    """Measures tests where they run, and accounts for them in the process that gets the reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._meter = times.Meter()
        self._worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        target: Path | None = config.getoption("--test-times")
        if self._worker is None and target is not None:
            workers = config.getoption("numprocesses", None) or 1
            config.pluginmanager.register(times.Account(target.absolute(), int(workers)), "k8spilot-account")

    # --- where tests run ---

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Wait for the lab before the clock of the test's own limit begins."""
        if groups.facts_of(item).need != "nothing":
            _wait_for_lab()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what this step of the test took."""
        report = yield
        self._meter.measure(report, groups.part_of(item))
        return report

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the facts about the collected tests for the scheduler."""
        # Imported modules are exempt from garbage collection. With them, the one after each test module takes 260 ms.
        gc.collect()
        gc.freeze()
        if self._worker is not None and _FACTS in self._worker:
            groups.write(session.items, Path(self._worker[_FACTS]) / self._worker["workerid"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Remove the pilots that tests shared, once all workers have ended."""
        if self._worker is not None:
            return
        with suppress(LabError):  # there is no lab, or it is broken: what is left is in the way of nobody
            lab = Lab.attach()
            pilots.remove(lab, os.environ.get(PREFIX, ""))


class Distribution:
    """In the process that gives tests to workers."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="k8spilot-tests-")

    def pytest_configure_node(self, node: "WorkerController") -> None:
        """Pass a worker the folder for the facts about the tests that it collects."""
        node.workerinput[_FACTS] = self._folder.name

    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Scheduler | None:
        """Use the suite's own scheduler, unless another one is asked for."""
        if config.getoption("dist") != "load":
            return None
        tests = {**times.read(ALL_TIMES)["tests"], **times.read(TIMES)["tests"]}
        seconds = {name: float(test["wall"]) for name, test in tests.items()}
        return Scheduler(len(config.getoption("tx")), self._read_facts, seconds)

    def _read_facts(self) -> dict[str, groups.Facts]:
        found = groups.read(next(Path(self._folder.name).iterdir()))
        if LAB_OUTCOME in os.environ and any(one.need != "nothing" for one in found.values()):
            Thread(target=_bring_lab_up, args=(Path(os.environ[LAB_OUTCOME]),)).start()
        return found

    def pytest_unconfigure(self) -> None:
        """Remove what workers wrote."""
        self._folder.cleanup()


def register(config: pytest.Config) -> None:
    """Add the plugin to a session."""
    config.pluginmanager.register(Runner(config), "k8spilot-runner")
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        config.pluginmanager.register(Distribution(), "k8spilot-distribution")


def _bring_lab_up(outcome: Path) -> None:
    """Bring the lab up; write to `outcome` that it is, or why it is not."""
    command = [sys.executable, "-m", "lab", "up", *(["--on-demand"] if WHOLE in os.environ else [])]
    status = subprocess.run(command, cwd=CHECKOUT, check=False).returncode
    problem = f"`make lab` ended with status {status}; what it said is above the tests" if status else None
    part = outcome.with_suffix(".part")
    part.write_text(json.dumps({"problem": problem}))
    part.replace(outcome)


def _wait_for_lab() -> None:
    """Return when the lab that is being brought up beside the session is up, or is known to have failed."""
    if not (name := os.environ.get(LAB_OUTCOME)):
        return
    while not Path(name).exists():
        time.sleep(_LOOK_SECONDS)


def brought_up() -> Lab | None:
    """The lab that was brought up beside the session; None where it was not to be.

    Raises:
        LabError: it could not be brought up.
    """
    if not (name := os.environ.get(LAB_OUTCOME)):
        return None
    _wait_for_lab()
    if (problem := json.loads(Path(name).read_text())["problem"]) is not None:
        raise LabError(problem)
    return Lab.attach()
