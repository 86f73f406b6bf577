"""What all tests share."""

import os
import signal

import pytest

from lab.api import Lab
from tests.simulator.programs import Programs, build, obstacle

# A shell that starts the tests in the background has these ignored, and so would every process that a test starts.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)


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
