"""Tests that `make test` runs, and those that CI and the night run beside them."""

import pytest

from tests.runner.tiers import each_day

SUITE = """
import pytest
from tests.runner import tiers

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    tiers.mark(items)
"""
TESTS = """
import pytest

@pytest.fixture(params=["simulator", "node"])
def engine(request):
    return request.param

def test_an_engine(engine): pass

@pytest.mark.cluster
def test_an_engine_of_this_cluster(engine): pass

@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize("other", [1, 2])
def test_at_both_levels(level, other): pass

@pytest.mark.parametrize("level", ["restricted"])
def test_at_one_level(level): pass

@pytest.mark.parametrize("level", [pytest.param("baseline", marks=pytest.mark.nightly), "restricted"])
def test_at_one_level_each_day(level): pass

@pytest.mark.landing
def test_marked(): pass
"""

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
markers =
    cluster
    landing
    nightly
"""

pytest_plugins = ["pytester"]


def test_ci_has_tests_that_show_the_same_in_another_place(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makeconftest(SUITE)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest("--collect-only", "-q", "-m", "landing", "-p", "no:cacheprovider")
    found = {line.partition("::")[2] for line in result.outlines if "::" in line}
    assert found == {
        "test_an_engine[node]",
        "test_at_both_levels[1-restricted]",
        "test_at_both_levels[2-restricted]",
        "test_marked",
    }


def test_cases_are_for_each_day_for_ci_or_for_the_night() -> None:
    daily, landing, nightly = each_day(("a",), ("a", "b", "c"), landing=("b",))
    assert daily == "a"
    assert [one.marks[0].name for one in (landing, nightly)] == ["landing", "nightly"]
    with pytest.raises(ValueError, match="no such cases: \\['d'\\]"):
        each_day(("a",), ("a",), landing=("d",))
