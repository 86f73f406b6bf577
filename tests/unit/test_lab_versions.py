"""Versions of Kubernetes and HTCondor that the lab can have, and the table of what was run on them."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from lab import binaries, matrix
from lab.errors import LabError
from lab.settings import (
    CHECKOUT,
    HTCONDOR,
    HTCONDOR_SUITES,
    KUBERNETES,
    KUBERNETES_VERSIONS,
    RUNTIME,
    RUNTIMES,
    Settings,
)

CASES = """
<testcase classname="tests.engine.test_api" name="one"/>
<testcase classname="tests.engine.test_api" name="two"><skipped/></testcase>
<testcase classname="tests.e2e.test_ssh" name="one"/>
<testcase classname="tests.e2e.test_ssh" name="two"><failure/></testcase>
<testcase classname="tests.e2e.test_ssh" name="two"><error/></testcase>
<testcase classname="tests.e2e.provisioner.test_faults" name="one"><error/></testcase>
<testcase classname="tests.e2e.test_gpu_claims" name="one"><skipped/></testcase>
<testcase classname="tests.e2e.test_gpus" name="one"><skipped/></testcase>
<testcase classname="tests.e2e.test_gpus" name="one"><error/></testcase>
"""


@pytest.mark.parametrize("minor", KUBERNETES_VERSIONS)
def test_each_version_of_kubernetes_has_its_modules_and_a_key_of_its_own(
    minor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SPILOT_LAB_KUBERNETES", minor)
    kubernetes = binaries.node_modules(Settings.from_environment())[-1]
    version = KUBERNETES_VERSIONS[minor]
    assert f"k8s.io/kubernetes {version}\n" in (kubernetes.folders[0] / "go.mod").read_text()
    assert [path.name for path in kubernetes.files()] == ["go.mod", "go.sum", "main.go"]
    assert f"version.gitVersion={version} " in f"{kubernetes.linker_flags} "
    monkeypatch.delenv("K8SPILOT_LAB_KUBERNETES")
    usual = binaries.node_modules(Settings.from_environment())[-1]
    assert (kubernetes.key() == usual.key()) == (minor == KUBERNETES)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_runtime_is_another_node_and_keeps_its_images_apart(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Settings.from_environment()
    monkeypatch.setenv("K8SPILOT_LAB_RUNTIME", runtime)
    found = Settings.from_environment()
    keys = [[module.key() for module in binaries.node_modules(one)] for one in (usual, found)]
    assert (keys[0] == keys[1]) == (usual.images == found.images) == (runtime == RUNTIME)


@pytest.mark.parametrize(
    ("variable", "known"),
    [
        ("K8SPILOT_LAB_KUBERNETES", KUBERNETES_VERSIONS),
        ("K8SPILOT_LAB_HTCONDOR", HTCONDOR_SUITES),
        ("K8SPILOT_LAB_RUNTIME", RUNTIMES),
    ],
)
def test_a_version_that_the_lab_lacks_is_refused_with_those_that_it_has(
    variable: str, known: Collection[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1.2")
    with pytest.raises(LabError, match=f"{variable} is '1.2': the lab has {', '.join(known)}"):
        Settings.from_environment()


@pytest.mark.parametrize(
    ("suite", "words", "is_good"),
    [
        (None, "2 passed, **3 failed**, 2 skipped", False),
        ("engine on the node", "1 passed, 1 skipped", True),
        ("jobs", "1 passed, **2 failed**", False),
        ("GPUs", "0 passed, **1 failed**, 1 skipped", False),
        ("attacks", "not run", False),
    ],
)
def test_the_result_of_a_suite_is_read_from_the_report(
    tmp_path: Path, suite: str | None, words: str, is_good: bool
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{CASES}</testsuite></testsuites>")
    assert matrix.outcome(report, suite) == (words, is_good)


@pytest.mark.parametrize(
    ("content", "words"), [("<testsuites>", "**no report**"), ("<testsuites><testsuite/></testsuites>", "not run")]
)
def test_a_report_without_tests_is_no_good_result(tmp_path: Path, content: str, words: str) -> None:
    report = tmp_path / "report.xml"
    report.write_text(content)
    assert matrix.outcome(report) == (words, False)


def test_each_module_of_tests_on_the_node_has_one_column() -> None:
    for folder in ("engine", "e2e", "attacks"):
        for path in (CHECKOUT / "tests" / folder).rglob("test_*.py"):
            name = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
            assert len([suite for suite, pattern in matrix.SUITES.items() if re.match(pattern, name)]) == 1, name


def test_the_table_has_a_column_for_each_fact() -> None:
    heads, line, row = matrix.table([dict.fromkeys(matrix.HEADS, "x")])
    assert heads.count("|") == line.count("|") == row.count("|") == len(matrix.HEADS) + 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1.34", ("1.34", HTCONDOR, RUNTIME, "")),
        ("1.36+23.9", ("1.36", "23.9", RUNTIME, "")),
        ("1.33+containerd-1.7+merged-groups", ("1.33", HTCONDOR, "containerd-1.7", "merged-groups")),
    ],
)
def test_a_combination_names_only_what_is_not_usual(name: str, expected: tuple[str, ...]) -> None:
    assert matrix.parts(name) == expected


@pytest.mark.parametrize("name", matrix.COMBINATIONS)
def test_the_lab_has_all_parts_of_each_combination(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in zip(matrix.VARIABLES, matrix.parts(name), strict=True):
        monkeypatch.setenv(variable, value)
    assert " ".join(Settings.from_environment().components) == matrix.parts(name)[-1]


def test_the_combinations_have_each_version_and_runtime_of_the_lab_and_the_page_names_them_all() -> None:
    parts = [set(matrix.parts(name)) for name in matrix.COMBINATIONS]
    assert {*KUBERNETES_VERSIONS, *HTCONDOR_SUITES, *RUNTIMES} <= set().union(*parts)
    page = (CHECKOUT / "docs/reference/clusters.md").read_text()
    assert [name for name in matrix.COMBINATIONS if name not in page] == []


def test_a_component_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SPILOT_LAB_COMPONENTS", "restricted user-namespaces")
    with pytest.raises(LabError, match="K8SPILOT_LAB_COMPONENTS names 'user-namespaces', which is no folder"):
        Settings.from_environment()
