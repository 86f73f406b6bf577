"""The map of the source: the docstring of each package, and the layers that import-linter checks."""

import ast
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src/k8spilot"

INTRODUCTION: Final = """\
# Map of the source

`src/k8spilot/` has one package for each part of a pilot. Its `__init__.py` says what the package is for, where to enter
it, and what it may import.

*This page is generated from the packages.*

## Layers

A package imports from lower layers only, and not from those on its line; import-linter checks it (`make check`). From
top to bottom:
"""

OTHERS: Final = """\
## Beside the source

| Folder | What is there |
|---|---|
| `manifests/`, `components/`, `overlays/` | The kustomize base, its components, an example. |
| `lab/` | The test bed: a real node, a registry and an HTCondor pool on one machine. |
| `tests/` | Unit tests, the engine on a simulator and on a node, end to end, attacks, comparison with dockerd. |
| `bench/`, `soak/` | The figures; jobs and faults drawn from a seed. |
| `docs/` | These pages. `docs/generate/` makes the generated ones. |
"""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION, "```", *layers(), "```\n", "## Packages\n"]
    for name, words in packages():
        paragraphs = [" ".join(paragraph.split()) for paragraph in words.split("\n\n")]
        parts += [f"{'####' if '/' in name else '###'} `{name}/`\n", *(f"{one}\n" for one in paragraphs)]
    return "\n".join([*parts, OTHERS])


def layers() -> list[str]:
    """Return the layers, those side by side on one line."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in linter["contracts"] if one["type"] == "layers"]
    return [line.replace(" | ", ", ").replace(" : ", ", ") for line in contract["layers"]]


def packages() -> list[tuple[str, str]]:
    """Return each package by its path, in the order of the layers, with its docstring."""
    order = [name for line in layers() for name in line.split(", ")]
    found = {
        path.parent.relative_to(SOURCE).as_posix(): ast.get_docstring(ast.parse(path.read_text())) or ""
        for path in SOURCE.glob("*/**/__init__.py")
    }
    return sorted(found.items(), key=lambda one: (order.index(one[0].partition("/")[0]), one[0]))
