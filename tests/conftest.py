"""Fixtures and hooks that all tests share."""

import asyncio
import fcntl
import gc
import inspect
import os
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

import k8spilot
from lab.api import Lab
from lab.errors import LabError
from lab.levels import Level
from lab.patience import SLOWNESS, scaled
from tests.e2e.pool import Pool
from tests.runner import plugin, tiers
from tests.runner.pilots import Configuration, Lease, Pilots
from tests.simulator.programs import Programs, build, obstacle

# A shell that starts the tests in the background has these ignored, and so would every process that a test starts.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


PACKAGE: Final = Path(k8spilot.__file__).parent
PREFIX: Final = "K8SPILOT_TEST_PREFIX"
"""Environment variable: a word in the names of pods. Checkouts that share one lab set different words."""
LOG: Final = "log of the pilot"
EVENTS: Final = "events"
PODS: Final = "pods"
SLOTS: Final = "slots of the pool"
JOBS: Final = "jobs"
LINES: Final = {LOG: 40, EVENTS: 12, PODS: 12, SLOTS: 12, JOBS: 12}
COLUMNS: Final = 240
"""Limits of a failure's report, in lines and characters of a line: several short ones tell more than a long one."""
LOOK_SECONDS: Final = 15.0
"""The node, or the pool, may be what is wrong."""
OF_SLOTS: Final = "Name State Activity K8SPodName"
OF_JOBS: Final = "ClusterId ProcId JobStatus NumShadowStarts LastMatchTime LastRejMatchReason"


class FailureReporter:
    """Reports a failure at once: a run of the whole suite that is cut off has no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the test's name, how long it took, and the last words of the failure."""
        if report.failed:
            words = report.longreprtext.strip().splitlines()[-12:]
            self._terminal.write_line(f"\n{report.when} of {report.nodeid} failed after {report.duration:.0f} s:")
            shown = [line for title, text in report.sections if title in LINES for line in text.splitlines()]
            for line in [*words, *shown]:
                self._terminal.write_line(f"    {line}")
            self._terminal.flush()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's own options."""
    plugin.add_options(parser)


@pytest.hookimpl(trylast=True)  # the terminal reporter comes first
def pytest_configure(config: pytest.Config) -> None:
    """Register the runner; where the output is, tell failures there."""
    plugin.register(config)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureReporter(terminal), "failure reporter")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure has its pilot's log with it, and the lab's state: all is gone when somebody comes to look."""
    report = yield
    if report.failed:
        given = list(getattr(item, "funcargs", {}).values())
        pool = next((one for one in given if isinstance(one, Pool)), None)
        lab = pool.lab if pool is not None else next((one for one in given if isinstance(one, Lab)), None)
        if lab is not None:
            item.config.hook.pytest_timeout_cancel_timer(item=item)  # it would end the session if it came meanwhile
            _show(report, lab, pool)
    return report


def _show(report: pytest.TestReport, lab: Lab, pool: Pool | None) -> None:
    of = ("-n", lab.namespace, "--no-headers")
    looks: dict[str, Callable[[], str]] = {
        EVENTS: lambda: lab.kubectl("events", *of, timeout=LOOK_SECONDS),
        PODS: lambda: lab.kubectl("get", "pods", *of, timeout=LOOK_SECONDS),
        SLOTS: lambda: lab.access_point("alice", f"condor_status -af {OF_SLOTS}", timeout=LOOK_SECONDS),
        JOBS: lambda: lab.access_point("alice", f"condor_q -allusers -af {OF_JOBS}", timeout=LOOK_SECONDS),
    }
    if pool is not None:
        looks = {LOG: lambda: pool.log(200, LOOK_SECONDS), **looks}
    for title, look in looks.items():
        with suppress(LabError, OSError, ValueError):  # what is looked at may be what is missing
            lines = [line[:COLUMNS] for line in look().splitlines()[-LINES[title] :]]
            report.sections.append((title, "\n".join(lines)))


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_mark_tiers(items: list[pytest.Item]) -> None:
    """Mark tests before -m selects by marks."""
    tiers.mark(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Watch coroutines' tasks. Leave out what is marked `nightly`, unless the expression of `-m` names it."""
    usual = float(config.getini("timeout") or 0)
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit = marker.args[0] if marker is not None and marker.args else usual
        if SLOWNESS > 1:
            item.add_marker(pytest.mark.timeout(scaled(float(limit))), append=False)
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.fixturenames.insert(0, no_task_is_left_running.__name__)  # the first to be set up ends last
    if "nightly" in (config.getoption("markexpr") or ""):
        return
    items[:], left_out = tiers.without_nightly(items)
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="module", autouse=True)
def what_is_left_open_is_told_here() -> Iterator[None]:
    """Collect garbage at the end of a module, so that what its tests left open is reported there and not later.

    The end of the next module reports it if a fixture of the last test, or a failure's traceback, still refers to it.
    """
    yield
    gc.collect()


@pytest.fixture
async def no_task_is_left_running() -> AsyncIterator[None]:
    """Fail a test after which tasks of k8spilot run: its event loop would cancel them without a word."""
    yield
    left = [task for task in asyncio.all_tasks() if _is_of(PACKAGE, task)]
    if left:  # what was cancelled just now needs a turn of the loop
        await asyncio.wait(left, timeout=1)
    assert [task for task in left if not task.done()] == []


def _is_of(package: Path, task: "asyncio.Task[Any]") -> bool:
    """Whether its coroutine is of the package."""
    return any(Path(frame.f_code.co_filename).is_relative_to(package) for frame in task.get_stack(limit=1))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Programs:
    """The project's programs and the simulator's own, compiled once for all workers: that takes 6 s of a core."""
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "programs"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build(folder)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab, brought up if it is not, with the image of this checkout; the runner does so beside other tests."""
    if (found := plugin.brought_up()) is not None:
        return found
    return Lab.up()


@pytest.fixture(scope="session")
def pilots(lab: Lab) -> Callable[[Level], Pilots]:
    """Pilots that all workers share, by the level of Pod Security."""
    return lambda level: Pilots(lab.at(level), os.environ.get(PREFIX, ""))


@pytest.fixture(scope="module")
def lease(
    pilots: Callable[[Level], Pilots], request: pytest.FixtureRequest
) -> Iterator[Callable[[Configuration, Level], str]]:
    """Takes a shared pilot for the rest of the module; returns the pod's name.

    After a failure in the module its pilots are deployed again for the next one.
    """
    failed = request.session.testsfailed
    with ExitStack() as leases:
        taken: dict[tuple[str, Level], Lease] = {}

        def take(configuration: Configuration, level: Level = "baseline") -> str:
            key = configuration.name, level
            if key not in taken:
                taken[key] = leases.enter_context(pilots(level).lease(configuration))
            return taken[key].pod

        yield take
        for one in taken.values():
            one.is_fit = request.session.testsfailed == failed


@pytest.fixture(scope="session")
def owner(worker_id: str) -> str:
    """Suffix of the names of pods; checkouts that share one lab set K8SPILOT_TEST_PREFIX."""
    return f"{os.environ.get(PREFIX, '')}{worker_id}"
