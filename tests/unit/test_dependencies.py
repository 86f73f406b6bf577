"""The declared dependencies are the imported packages, for each image, for the lab, and for the other programs."""

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCE = CHECKOUT / "src"
PROVISION = "k8spilot.cli.provision"
"""The command `k8spilot provision`. The other commands are for the pilot's image, and for an operator's machine."""
PROGRAMS = ("k8spilot.condor.configuration.expand",)
"""Modules that the provisioner runs as programs."""


def _name(requirement: str) -> str:
    return re.split(r"[\[><=~!; ]", requirement)[0].lower().replace("_", "-")


def _imports(path: Path) -> set[str]:
    """Names of the modules that a file imports, those that it imports in functions included; not those for types."""
    tree = ast.parse(path.read_bytes())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in for_types:
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and id(node) not in for_types:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _distributions(modules: Iterable[str]) -> set[str]:
    """Distributions of modules, without those of Python and of this checkout."""
    own = {"k8spilot", "lab", "tests", "bench", "soak", "docs"}
    known = packages_distributions()
    tops = {name.partition(".")[0] for name in modules} - own - sys.stdlib_module_names
    return {_name(known[one][0]) if one in known else one for one in tops}


def _imported(*folders: str) -> set[str]:
    """Distributions of the modules that the programs in these folders import."""
    return _distributions(
        name for folder in folders for path in (CHECKOUT / folder).rglob("*.py") for name in _imports(path)
    )


def _module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _reached(starts: Iterable[str], *, without: Collection[str] = ()) -> set[str]:
    """Distributions that modules of the package import, and the modules that these import, and so on."""
    paths = {_module(path): path for path in (SOURCE / "k8spilot").rglob("*.py")}
    found: set[str] = set()
    seen = set(without)
    left = list(starts)
    while left:
        name = left.pop()
        while name.startswith("k8spilot.") and name not in paths:  # a name in a module
            name = name.rpartition(".")[0]
        if name in paths and name not in seen:
            seen.add(name)
            left += [*_imports(paths[name]), name.rpartition(".")[0]]
        elif name not in paths:
            found.add(name)
    return _distributions(found - {""})


def _declared(*extras: str) -> set[str]:
    project: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    chosen = [one for extra in extras for one in project["optional-dependencies"][extra]]
    return {_name(one) for one in chosen or project["dependencies"]}


@pytest.mark.slow
def test_what_the_images_have_is_declared() -> None:
    assert _imported("src") == _declared() | _declared("pilot", "provisioner")


@pytest.mark.slow
def test_the_pilots_image_has_what_its_commands_import_and_nothing_else() -> None:
    modules = {_module(path) for path in (SOURCE / "k8spilot").rglob("*.py")}
    pilots = {name for name in modules if not name.startswith("k8spilot.provisioner")} - {PROVISION}
    assert _reached(pilots, without={PROVISION}) == _declared() | _declared("pilot")


@pytest.mark.slow
def test_the_provisioners_image_has_what_its_command_imports_and_nothing_else() -> None:
    assert _reached([PROVISION, *PROGRAMS]) == _declared() | _declared("provisioner")


def test_manifests_are_checked_and_changed_without_an_extra() -> None:
    commands = ("k8spilot.cli.manifests", "k8spilot.cli.settings", "k8spilot.cli.slots", "k8spilot.preflight.manifest")
    assert _reached([*commands, "k8spilot.provisioner.templates.manifest_findings"]) <= _declared()


def test_the_lab_declares_what_it_imports_beside_that() -> None:
    assert _imported("lab") - _declared() == _declared("lab")


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["tests", "bench", "soak"])
def test_other_programs_import_what_is_declared(folder: str) -> None:
    assert _imported(folder) <= _declared() | _declared("lab", "pilot", "dev")
