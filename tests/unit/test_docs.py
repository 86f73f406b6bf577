"""The documents are true: the tests, files, modules and messages that they name exist. And they can be read."""

import ast
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path

import pytest

from docs.generate import commands, evidence, metrics, settings
from docs.generate.pages import COMMITTED, SITE_ONLY, difference
from docs.generate.sources import BIND_RESULTS, EVENTS, EXIT_REASONS, HOLD_CLASSES, PayloadState, Settings, variables
from docs.generate.tables import Row, rows
from k8spilot.model import container_state, payload_state
from lab.settings import CHECKOUT
from tests.attacks.arsenal import AGAINST_NEIGHBOURS, ATTACKS
from tests.attacks.test_ends import ENDS_BADLY
from tests.attacks.test_htcondor import ENDINGS
from tests.attacks.test_images import TRICKS
from tests.attacks.test_neighbours import NOISE
from tests.attacks.test_noisy import STORIES
from tests.attacks.test_staging import SPECIAL

TESTS = CHECKOUT / "tests"
DOCS = CHECKOUT / "docs"
SOURCE = CHECKOUT / "src/k8spilot"
ONE_OF_MANY = {*ATTACKS, *STORIES, *ENDS_BADLY, *SPECIAL, *TRICKS, *ENDINGS, *AGAINST_NEIGHBOURS, *NOISE}
"""Attacks that are a case of a test."""
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*sorted(CHECKOUT.glob("*.md")), *PAGES]

LINES_OF_A_PAGE = 250
SENTENCES_OF_A_CELL = 2
WORDS_OF_A_CELL = 36
CHARACTERS_OF_A_CELL = 250
"""Two short sentences, with the links, names and figures in them."""
CHARACTERS_OF_TESTS = 160
"""Names of tests in a row; longer ones are in a footnote (docs/generate/evidence.py)."""

with_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
with_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))


@cache
def all_tests() -> frozenset[str]:
    files = [path.read_text() for path in TESTS.rglob("test_*.py")]
    return frozenset(name for text in files for name in re.findall(r"def (test_\w+)", text))


@with_document
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    assert set(re.findall(r"`(test_\w+)`", document.read_text())) - all_tests() == set()


@with_document
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    named = re.findall(r"`((?:tests|docs|manifests|components|overlays|src|lab)/[\w./-]*)`", document.read_text())
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


@with_document
def test_every_module_that_a_document_names_is_there(document: Path) -> None:
    named = re.findall(r"`([\w.-]+/[\w./-]+\.(?:py|c|sh))`", document.read_text())
    assert [name for name in named if not (SOURCE / name).exists() and not (CHECKOUT / name).exists()] == []


@with_document
def test_every_link_of_a_document_leads_to_a_file(document: Path) -> None:
    linked = re.findall(r"\]\(([\w./-]+)(?:#[\w-]*)?\)", document.read_text())
    assert [name for name in linked if not (document.parent / name).exists()] == []


@pytest.mark.parametrize("name", COMMITTED)
def test_a_generated_page_is_what_the_code_gives(name: str) -> None:
    """`make docs` renews it."""
    assert not difference(name), difference(name)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (CHECKOUT / "mkdocs.yml").read_text()
    pages = [*(str(page.relative_to(DOCS)) for page in PAGES), *SITE_ONLY]
    assert [page for page in pages if page not in navigation] == []


@with_page
def test_the_index_of_its_folder_links_a_page(page: Path) -> None:
    folders = page.parent.parents if page.name == "index.md" else page.parents
    index = next((folder / "index.md" for folder in folders if (folder / "index.md").exists()), None)
    if index is not None and index.is_relative_to(DOCS):
        linked = re.findall(r"\]\(([\w./-]+)(?:#[\w-]*)?\)", index.read_text())
        assert page in {(index.parent / name).resolve() for name in linked}


FIGURES = {
    "From the start of a job that does nothing": "0 s job to the next",
    "From the start of the starter": "starter begins (Job asked for) → first instruction, of jobs of 1 s",
    "Requests to the API server per job": "API server's requests about pods and Events a job, of all clients",
}
"""Beginnings of README's rows with figures, and the same rows of the page of the measurements."""
CONTESTANTS = {1: 1, 2: 3, 3: 4, 4: 5}
"""Columns of README, and the same columns of that page."""


@pytest.mark.parametrize("beginning", FIGURES)
def test_the_figures_of_the_readme_are_those_of_the_measurements_rounded(beginning: str) -> None:
    (shown,) = [row for row in rows((CHECKOUT / "README.md").read_text()) if row.cells[0].startswith(beginning)]
    page = (DOCS / "explanation/performance.md").read_text()
    (measured,) = [row for row in rows(page) if row.cells[0] == FIGURES[beginning]]
    for column, other in CONTESTANTS.items():
        figures = re.findall(r"[\d.]+", measured.cells[other].partition(" (")[0])
        assert {float(one) for one in re.findall(r"[\d.]+", shown.cells[column])} == {
            round(float(one), 1) for one in figures
        }


# --- They can be read ---


@with_page
def test_no_page_is_too_long(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES_OF_A_PAGE


@pytest.mark.parametrize("name", SITE_ONLY)
def test_no_page_of_the_site_is_too_long(name: str) -> None:
    assert len(SITE_ONLY[name]().splitlines()) <= LINES_OF_A_PAGE


@with_document
def test_no_cell_of_a_table_is_too_long(document: Path) -> None:
    assert list(_long_cells(document.read_text())) == []


def _long_cells(markdown: str) -> Iterator[str]:
    for row in rows(markdown):
        if _has_tests(row) and len(row.cells[-1]) > CHARACTERS_OF_TESTS:
            yield row.cells[-1]
        cells = row.cells[:-1] if _has_tests(row) else row.cells
        for cell in cells:
            plain = re.sub(r"`[^`]*`", "code", cell)
            sentences = len(re.findall(r"[.!?](?= +(?:[A-Z*\[]|code)|$)", plain.strip())) or 1
            words = len(re.findall(r"[A-Za-z]+", re.sub(r"\]\([^)]*\)", "]", plain)))
            if sentences > SENTENCES_OF_A_CELL or len(cell) > CHARACTERS_OF_A_CELL or words > WORDS_OF_A_CELL:
                yield cell


@with_page
def test_tests_are_named_outside_of_the_sentences_of_tables(page: Path) -> None:
    cells = [cell for row in rows(page.read_text()) for cell in row.cells[: len(row.header) - _has_tests(row)]]
    assert [cell for cell in cells if "`test_" in cell] == []


@with_page
def test_every_footnote_has_its_row(page: Path) -> None:
    text = page.read_text()
    marks = [row.cells[-1] for row in rows(text) if _has_tests(row) and row.cells[-1].startswith("[^")]
    assert sorted(marks) == sorted(evidence.footnotes(text))


def _has_tests(row: Row) -> bool:
    return row.header[-1] == evidence.COLUMN


# --- The reference is complete ---


def test_every_setting_is_in_the_reference_with_its_meaning_and_what_it_can_be() -> None:
    found = {one.variable: one for one in settings.settings()}
    assert found.keys() == variables().keys()
    assert [name for name, one in found.items() if not one.meaning or not one.allowed] == []
    assert [name for name in found if f"| `{name}` |" not in settings.page()] == []


def test_a_setting_that_is_needed_says_so() -> None:
    meanings = {one.variable: one.meaning for one in settings.settings()}
    needed = [name.partition(" ")[0] for name, _ in Settings(pod_name="a", pod_namespace="b", services=())._needed()]
    full = Settings(
        pod_name="a", pod_namespace="b", glidein_site="c", glidein_resource_name="d", pool="e", num_cpus=1, memory=1
    )
    needed += [name.partition(" ")[0] for name, _ in full._needed()]
    alternatives = {"CONDOR_HOST": "POOL", "NUM_CPUS": "PAYLOAD_CPUS", "MEMORY": "PAYLOAD_MEMORY_MB"}
    assert [name for name in needed if "Required" not in meanings[alternatives.get(name, name)]] == []


def test_every_metric_and_every_value_of_its_label_is_in_the_reference() -> None:
    page = metrics.page()
    families = {one.name for one in metrics.exposed()}
    named = {
        word for path in SOURCE.rglob("*.py") for word in re.findall(r'"k8spilot_(\w+?)(?:_total)?"', path.read_text())
    }
    assert len(families) >= 25
    assert [name for name in families | {f"k8spilot_{name}" for name in named} if name not in page] == []
    for values in (BIND_RESULTS, EXIT_REASONS, HOLD_CLASSES):
        assert [value for value in values if f"| `{value}` |" not in page] == []
    assert [state for state in PayloadState if f"`{state.value}`" not in page] == []


def test_every_event_is_in_the_reference() -> None:
    page = COMMITTED["reference/events.md"]()
    assert [reason for reason in EVENTS if f"| `{reason}` |" not in page] == []


def test_every_command_and_option_is_in_the_reference() -> None:
    page = commands.page()
    for name, command in commands.commands():
        assert f"## `{name}`" in page
        assert [one for one in command.params if one.opts[0] not in page] == []


@pytest.mark.parametrize(
    ("header", "transitions"), [("State", payload_state.TRANSITIONS), ("Container", container_state.TRANSITIONS)]
)
def test_the_state_tables_are_the_codes(header: str, transitions: Mapping[Enum, Mapping[Enum, Enum]]) -> None:
    text = (DOCS / "explanation/life-of-a-job.md").read_text()
    told = {row.cells[0].strip("`"): row.cells[-1] for row in rows(text) if row.header[0] == header}
    code = {
        state.name: ", ".join(f"{event.value} → `{after.name}`" for event, after in events.items())
        for state, events in transitions.items()
    }
    assert told == code


# --- The evidence is complete ---


def test_every_row_of_a_failure_has_tests() -> None:
    untested = {"It is gone for an hour."}
    found = [row for page in PAGES if "failures" in page.parts for row in evidence.evidence(page.read_text())]
    assert len(found) >= 100
    assert {row.cells[0] for row in found if not row.cells[-1]} == untested


def test_every_row_of_a_submit_command_has_tests_but_on_the_page_that_says_so() -> None:
    found = {
        page.name: [row for row in evidence.evidence(page.read_text()) if not row.cells[-1]]
        for page in PAGES
        if "submit-commands" in page.parts
    }
    assert len(found.pop("other.md")) <= 16
    assert [row.cells[0] for untested in found.values() for row in untested] == []


def test_every_attack_is_in_the_table() -> None:
    """Each test of tests/attacks, and each of those that one test does for many."""
    told = {word for row in _attacks() for word in re.findall(r"`([^`]+)`", row.cells[-1])}
    files = [path.read_text() for path in TESTS.glob("attacks/test_*.py")]
    attacks = {name for text in files for name in re.findall(r"def (test_\w+)", text)}
    assert (attacks | ONE_OF_MANY) - told == set()


def test_every_row_of_an_attack_has_a_test() -> None:
    """A test, or one of those that one test does for many, with that test's name."""
    for row in _attacks():
        words = re.findall(r"`([^`]+)`", row.cells[-1])
        assert words, row.cells[0]
        assert words[0].startswith(("test_", "tests/")), row.cells[0]
        assert {word for word in words if not word.startswith(("test_", "tests/"))} <= ONE_OF_MANY, row.cells[0]


def _attacks() -> list[Row]:
    return evidence.evidence((DOCS / "reference/attacks.md").read_text())


@pytest.mark.parametrize("name", evidence.PAGES)
def test_every_row_with_tests_is_on_a_page_of_evidence(name: str) -> None:
    page = evidence.page(name)
    for path in PAGES:
        source = path.relative_to(DOCS).as_posix()
        if (found := evidence.evidence(path.read_text())) and evidence.page_of(source) == name:
            assert [row.cells[0] for row in found if evidence.anchor(source, row) not in page] == []


@cache
def nightly_tests() -> frozenset[str]:
    """Tests of which CI runs no case."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        is_nightly = any(
            isinstance(node, ast.Assign) and _names_nightly(node.value) and ast.unparse(node.targets[0]) == "pytestmark"
            for node in tree.body
        )
        found.update(
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            if is_nightly or any(_names_nightly(one) for one in node.decorator_list)
        )
    return frozenset(found)


def _names_nightly(node: ast.expr) -> bool:
    """Whether an expression has the marker for all cases of a test, and not for some in a list of parameters."""
    marks = node.elts if isinstance(node, ast.List) else [node]
    return any(ast.unparse(one) in ("pytest.mark.nightly", "NIGHTLY") for one in marks)


@with_page
def test_every_row_with_tests_has_one_that_ci_runs(page: Path) -> None:
    left = nightly_tests()
    assert left
    for row in evidence.evidence(page.read_text()):
        tests = set(re.findall(r"`(test_\w+)", row.cells[-1]))
        assert not tests or tests - left, row.cells[0]


# --- What it quotes is said ---


@cache
def messages() -> tuple[str, ...]:
    """Every text of the code, with … for the values in it."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


@pytest.mark.parametrize("name", ["how-to/troubleshooting.md", "how-to/held-jobs.md"])
def test_every_message_of_k8spilot_that_is_quoted_is_in_the_code(name: str) -> None:
    """In the first column: code is of k8spilot's own words, in italics are those of others."""
    first = [row.cells[0] for row in rows((DOCS / name).read_text()) if row.header[0].startswith("Message")]
    quoted = [quote for cell in first for quote in re.findall(r"`([^`]{12,})`", cell)]
    assert len(quoted) >= 12
    assert [quote for quote in quoted if not _is_said(quote)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tutorial/first-pilot.md", "how-to/check.md"])
def test_every_line_of_a_check_that_is_shown_is_as_the_code_says_it(name: str) -> None:
    shown = re.findall(r"^good +(\S+) +(.+)$", (DOCS / name).read_text(), re.MULTILINE)
    forms = [re.escape(message).replace("…", ".+") for message in messages() if len(message.replace("…", "")) > 8]
    assert len(shown) >= 4
    assert [words for _, words in shown if not any(re.fullmatch(form, words) for form in forms)] == []


def _is_said(quote: str) -> bool:
    pattern = re.compile(".*".join(re.escape(part.strip()) for part in quote.split("…")))
    return any(pattern.search(message) for message in messages())
