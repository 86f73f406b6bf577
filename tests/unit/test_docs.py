"""What the documents say of the tests is so."""

import re
from pathlib import Path

import pytest

from lab.settings import CHECKOUT
from tests.attacks.arsenal import ATTACKS
from tests.attacks.test_ends import ENDS_BADLY
from tests.attacks.test_htcondor import ENDINGS
from tests.attacks.test_images import TRICKS
from tests.attacks.test_noisy import STORIES
from tests.attacks.test_staging import SPECIAL

TESTS = CHECKOUT / "tests"
ONE_OF_MANY = {*ATTACKS, *STORIES, *ENDS_BADLY, *SPECIAL, *TRICKS, *ENDINGS}
"""Attacks that are a case of a test."""
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_of_a_document_leads_to_a_file(document: Path) -> None:
    linked = re.findall(r"\]\(([\w./-]+)(?:#[\w-]*)?\)", document.read_text())
    assert [name for name in linked if not (document.parent / name).exists()] == []


def _cells(document: Path) -> set[str]:
    """What stands between backticks in its tables."""
    rows = [line for line in document.read_text().splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_every_attack_is_in_the_table() -> None:
    """Each test of tests/attacks, and each of those that one test does for many."""
    cells = _cells(CHECKOUT / "docs/security.md")
    files = [path.read_text() for path in TESTS.glob("attacks/test_*.py")]
    tests = {name for text in files for name in re.findall(r"def (test_\w+)", text)}
    assert (tests | ONE_OF_MANY) - {cell.partition("[")[0] for cell in cells} == set()


def test_every_row_of_an_attack_has_a_test() -> None:
    """Whatever it names: a test, or one of those that one test does for many."""
    attacks = (CHECKOUT / "docs/security.md").read_text().partition("## Attacks")[2]
    heads = ("|---", "| The job |")
    rows = [line for line in attacks.splitlines() if line.startswith("|") and not line.startswith(heads)]
    named = {row: re.findall(r"`([^`]+)`", row) for row in rows}
    assert [row for row, words in named.items() if not any(_is_attack(word) for word in words)] == []


def _is_attack(word: str) -> bool:
    return word in ONE_OF_MANY or word.startswith(("test_", "tests/"))
