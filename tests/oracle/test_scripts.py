"""Every script gives the same on a real dockerd and on k8spilot, or differs in the way that is meant."""

import importlib
import pkgutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.oracle import scripts
from tests.oracle.differences import DIFFERENCES, NOT_YET
from tests.oracle.engines import Docker, unnamed
from tests.oracle.scripts import SCRIPTS

for _module in pkgutil.iter_modules(scripts.__path__):
    importlib.import_module(f"{scripts.__name__}.{_module.name}")


def _run(name: str, docker: Docker) -> Any:
    try:
        return unnamed(SCRIPTS[name](docker), {docker.name: "NAME", docker.registry: "REGISTRY"})
    finally:
        docker.remove_all()


def _parameter(name: str) -> Any:
    marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason=NOT_YET[name])] if name in NOT_YET else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [_parameter(name) for name in SCRIPTS])
def test_both_answer_the_same(both: dict[str, Docker], name: str) -> None:
    with ThreadPoolExecutor() as threads:
        begun = {engine: threads.submit(_run, name, docker) for engine, docker in both.items()}
        found = {engine: one.result() for engine, one in begun.items()}
    if (meant := DIFFERENCES.get(name)) is None:
        assert found["k8spilot"] == found["dockerd"]
        return
    assert found["dockerd"] == meant.dockerd
    assert found["k8spilot"] == meant.k8spilot
    assert meant.dockerd != meant.k8spilot


def test_the_table_of_differences_names_scripts_only() -> None:
    assert set(DIFFERENCES) | set(NOT_YET) <= set(SCRIPTS)
