"""The plugin of pytest that tests/conftest.py registers: options, measurement, and the scheduler of pytest-xdist."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.process_group import KILL_SECONDS
from lab.settings import CHECKOUT, SESSION_VARIABLE, Settings
from tests.runner import groups, sessions, times
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
_FACTS: Final = "k8spilot_facts"
_LOOK_SECONDS: Final = 0.5
_CLEAN_UP_SECONDS: Final = KILL_SECONDS - 15.0
"""Limit of the wait for interrupted workers. The rest is for pytest-xdist (up to 10 s) and the removal of pods."""


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
        self._session = sessions.Session()
        if self._worker is None:
            os.environ[SESSION_VARIABLE] = self._session.name
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
        """Write the facts about the collected tests for the main process. Without workers, begin to use the lab."""
        # Imported modules are exempt from garbage collection. With them, the one after each test module takes 260 ms.
        gc.collect()
        gc.freeze()
        if self._worker is not None:
            if _FACTS in self._worker:
                groups.write(session.items, Path(self._worker[_FACTS]) / self._worker["workerid"])
        elif not self._config.option.collectonly:
            self.begin({item.nodeid: groups.facts_of(item) for item in session.items})

    def begin(self, tests: Mapping[str, groups.Facts]) -> None:
        """In the main process, if a test needs the lab: lock the session's file, and bring the lab up or clean it."""
        if all(one.need == "nothing" for one in tests.values()):
            return
        try:
            settings = Settings.from_environment()
        except LabError as problem:
            raise pytest.UsageError(str(problem)) from problem
        self._session.begin(sessions.folder_of(settings))
        if name := os.environ.get(LAB_OUTCOME):
            Thread(target=_bring_lab_up, args=(Path(name),)).start()
        else:
            _remove(sessions.remove_ended)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Remove what the session has deployed, once all workers have ended."""
        if self._worker is None:
            _remove(self._session.end)


class Distribution:
    """In the process that gives tests to workers."""

    def __init__(self, begin: Callable[[Mapping[str, groups.Facts]], None]) -> None:
        """`begin` is called with the facts about all tests before the first one."""
        self._begin = begin
        self._facts: dict[str, groups.Facts] = {}
        self._workers: list[WorkerController] = []
        self._folder = tempfile.TemporaryDirectory(prefix="k8spilot-tests-")

    def pytest_testnodeready(self, node: "WorkerController") -> None:
        """Remember each worker that is ready for tests."""
        self._workers.append(node)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Wait until the workers that were interrupted with this process have cleaned up.

        pytest-xdist comes next: it kills workers after 10 s, and before that, execnet interrupts their clean-up after
        5 s (gateway_base.py, WorkerGateway._terminate_execution). A daemon that a test has stopped would stay
        stopped.
        """
        if exitstatus != pytest.ExitCode.INTERRUPTED:
            return
        for worker in self._workers:
            worker.shutdown()  # a worker that was not interrupted ends after its tests
        deadline = time.monotonic() + _CLEAN_UP_SECONDS
        for channel in (worker.channel for worker in self._workers):
            with suppress(channel.TimeoutError, channel.RemoteError, EOFError):  # EOFError: the worker has ended
                channel.waitclose(max(0.0, deadline - time.monotonic()))

    def pytest_xdist_node_collection_finished(self, node: "WorkerController") -> None:
        """Begin to use the lab when the first worker has collected the tests."""
        if not self._facts:
            self._facts = groups.read(Path(self._folder.name) / node.workerinput["workerid"])
            self._begin(self._facts)

    def pytest_configure_node(self, node: "WorkerController") -> None:
        """Pass a worker the folder for the facts about the tests that it collects."""
        node.workerinput[_FACTS] = self._folder.name

    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Scheduler | None:
        """Use the suite's own scheduler, unless another one is asked for."""
        if config.getoption("dist") != "load":
            return None
        tests = {**times.read(ALL_TIMES)["tests"], **times.read(TIMES)["tests"]}
        seconds = {name: float(test["wall"]) for name, test in tests.items()}
        return Scheduler(len(config.getoption("tx")), lambda: self._facts, seconds)

    def pytest_unconfigure(self) -> None:
        """Remove what workers wrote."""
        self._folder.cleanup()


def register(config: pytest.Config) -> None:
    """Add the plugin to a session."""
    runner = Runner(config)
    config.pluginmanager.register(runner, "k8spilot-runner")
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        config.pluginmanager.register(Distribution(runner.begin), "k8spilot-distribution")


def _bring_lab_up(outcome: Path) -> None:
    """Bring the lab up; write to `outcome` that it is, or why it is not."""
    command = [sys.executable, "-m", "lab", "up", *(["--on-demand"] if WHOLE in os.environ else [])]
    problem: str | None = "`make lab` was not executed to its end; the reason is above the tests"
    try:
        status = subprocess.run(command, cwd=CHECKOUT, check=False).returncode
        problem = f"`make lab` ended with status {status}; what it said is above the tests" if status else None
        if problem is None:
            _remove(sessions.remove_ended)
    finally:  # workers wait for it
        part = outcome.with_suffix(".part")
        part.write_text(json.dumps({"problem": problem}))
        part.replace(outcome)


def _remove(what: Callable[[Lab], None]) -> None:
    """Remove pods and jobs from the lab if there is one; print the reason where that fails."""
    try:
        lab = Lab.attach()
    except LabError:
        return
    try:
        what(lab)
    except LabError as problem:
        print(f"tests: could not remove what sessions have left in the lab: {problem}", file=sys.stderr)


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
