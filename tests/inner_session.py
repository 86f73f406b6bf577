"""A session of pytest that a test runs in a folder of its own, with the suite's plugin."""

import os
import sys
from pathlib import Path
from typing import Final

from lab.settings import CHECKOUT
from tests.runner.plugin import LAB_OUTCOME

_CONFTEST: Final = """
from tests.runner import plugin

def pytest_addoption(parser):
    plugin.add_options(parser)

def pytest_configure(config):
    plugin.register(config)
"""


def prepare(folder: Path, module: str, *options: str) -> tuple[list[str], dict[str, str]]:
    """Write a module of tests below `folder`; return a session's command line, to be run in `folder`, and environment.

    Args:
        folder: an empty folder.
        module: source of the tests.
        options: more options of pytest.
    """
    (folder / "tests/inner").mkdir(parents=True)
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "tests/inner/test_inner.py").write_text(module)
    own = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", *options]
    outside = {name: value for name, value in os.environ.items() if name != LAB_OUTCOME}  # it is the outer session's
    return [sys.executable, "-m", "pytest", *own], {**outside, "PYTHONPATH": str(CHECKOUT)}
