"""What is declared is imported, and what is imported is declared: an image carries nothing that nobody needs."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]


def _name(requirement: str) -> str:
    return re.split(r"[\[><=~!; ]", requirement)[0].lower().replace("_", "-")


def _imported(*folders: str) -> set[str]:
    """Distributions of the modules that the programs in these folders import."""
    modules: set[str] = set()
    for folder in folders:
        for path in (CHECKOUT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Import):
                    modules.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    modules.add(node.module.partition(".")[0])
    own = {"k8spilot", "lab", "tests", "bench", "soak", "docs"}
    known = packages_distributions()
    return {_name(known[one][0]) if one in known else one for one in modules - own - sys.stdlib_module_names}


def _declared(*extras: str) -> set[str]:
    project: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    chosen = [one for extra in extras for one in project["optional-dependencies"][extra]]
    return {_name(one) for one in chosen or project["dependencies"]}


def test_the_image_has_what_its_programs_import_and_nothing_else() -> None:
    assert _imported("src") == _declared() | _declared("provisioner")


def test_the_pilots_image_has_nothing_of_the_provisioners() -> None:
    parts = [one.name for one in (CHECKOUT / "src/k8spilot").iterdir() if one.name not in ("provisioner", "cli")]
    found = _imported(*(f"src/k8spilot/{name}" for name in parts))
    assert found & (_declared("provisioner") - _declared()) == set()


def test_the_lab_declares_what_it_imports_beside_that() -> None:
    assert _imported("lab") - _declared() == _declared("lab")


@pytest.mark.parametrize("folder", ["tests", "bench", "soak"])
def test_other_programs_import_what_is_declared(folder: str) -> None:
    assert _imported(folder) <= _declared() | _declared("lab", "dev")
