"""What all tests share."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final

import pytest

from lab.api import Lab
from lab.errors import LabError
from tests.e2e.pool import Pool
from tests.simulator.programs import Programs, build, obstacle

# A shell that starts the tests in the background has these ignored, and so would every process that a test starts.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


LOG: Final = "log of the pilot"
LOG_LINES: Final = 40
LOG_COLUMNS: Final = 240
"""What is shown of it: a few whole failures are worth more than one with all that was said."""


class Teller:
    """Tells of a failure at once: a run of the whole suite that is cut off has no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the test's name, how long it took, and the last words of the failure."""
        if report.failed:
            words = report.longreprtext.strip().splitlines()[-12:]
            self._terminal.write_line(f"\n{report.when} of {report.nodeid} failed after {report.duration:.0f} s:")
            for line in [*words, *dict(report.sections).get(LOG, "").splitlines()]:
                self._terminal.write_line(f"    {line}")


@pytest.hookimpl(trylast=True)  # the terminal reporter comes first
def pytest_configure(config: pytest.Config) -> None:
    """Where the output is, tell failures there."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Teller(terminal), "teller")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure has the log of its pilot with it: the pod is gone when somebody comes to look."""
    report = yield
    pool = next((one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Pool)), None)
    if report.failed and pool is not None:
        with suppress(LabError):  # the pod may be what is missing
            lines = [line[:LOG_COLUMNS] for line in pool.log(200).splitlines()[-LOG_LINES:]]
            report.sections.append((LOG, "\n".join(lines)))
    return report


@pytest.fixture(scope="module", autouse=True)
def what_is_left_open_is_told_here() -> Iterator[None]:
    """What tests did not close is told at the end of their module, and not wherever the collector comes by.

    At the end of the next one where a fixture of the last test has it, or a failure's traceback.
    """
    yield
    gc.collect()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """payload-init and the simulator's own programs, compiled."""
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab, brought up if it is not, with the image of this checkout."""
    return Lab.up()


@pytest.fixture(scope="session")
def owner(worker_id: str) -> str:
    """What names of pods end with; checkouts that share one lab set K8SPILOT_TEST_PREFIX."""
    return f"{os.environ.get('K8SPILOT_TEST_PREFIX', '')}{worker_id}"
