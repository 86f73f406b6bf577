"""What the documents say of the tests is so."""

import re
from pathlib import Path

import pytest

from lab.settings import CHECKOUT

TESTS = CHECKOUT / "tests"
DOCUMENTS = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", document.read_text()))
    there = {name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named <= there


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    named = re.findall(r"`((?:tests|docs|manifests|components|overlays|src|lab)/[\w./-]*)`", document.read_text())
    assert [name for name in named if not (CHECKOUT / name).exists()] == []
