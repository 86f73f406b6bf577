"""Evidence: which test shows what a row of a table says.

The source of a page has the tests in the last column of its table, under the title `Tests`. Where they are too long for
a cell, it has `[^1]`, and the end of the page has a line `[^1]: ...`. The site shows a link there, and the tests on a
page of their own.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from docs.generate.tables import Row, rows, table

COLUMN: Final = "Tests"
DOCS: Final = Path(__file__).parents[1]
TESTS: Final = DOCS.parent / "tests"

PAGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "evidence/submit-commands.md": ("submit commands", ("reference/submit-commands/",)),
    "evidence/failures.md": ("failures", ("reference/failures/",)),
    "evidence/attacks.md": ("attacks", ("reference/attacks.md",)),
    "evidence/other.md": ("other tables", ("reference/", "how-to/", "explanation/", "tutorial/")),
}
"""Pages of evidence, each with its subject and the pages whose tables it has. The first one that fits counts."""

_FOOTNOTE: Final = re.compile(r"^\[\^([\w-]+)\]: (.*)\n?", re.MULTILINE)


def page_of(path: str) -> str:
    """Return the page of evidence for the tables of a page, both as paths in the site."""
    return next(name for name, (_, parts) in PAGES.items() if path.startswith(parts))


def evidence(markdown: str) -> list[Row]:
    """Return the rows of a page that name their tests; a footnote in the last cell is replaced with its tests."""
    notes = footnotes(markdown)
    found = [row for row in rows(markdown) if row.header[-1] == COLUMN]
    return [replace(row, cells=(*row.cells[:-1], notes.get(row.cells[-1], row.cells[-1]))) for row in found]


def footnotes(markdown: str) -> dict[str, str]:
    """Return the footnotes of a page, each by its mark such as `[^1]`."""
    return {f"[^{label}]": text for label, text in _FOOTNOTE.findall(markdown)}


def page(name: str) -> str:
    """Return a page of evidence.

    Args:
        name: one of `PAGES`.
    """
    about, _ = PAGES[name]
    parts = [
        f"# Evidence: {about}\n",
        f"The tests behind the tables of {about}: each fails when its row is no longer true.\n",
        "*This page is generated from the tables' sources; `tests/unit/test_docs.py` checks that each test exists.*\n",
    ]
    for path in sorted(DOCS.rglob("*.md")):
        source = path.relative_to(DOCS).as_posix()
        found = evidence(path.read_text()) if page_of_or_none(source) == name else []
        if found:
            title = re.search(r"^# (.*)", path.read_text(), re.MULTILINE)
            parts.append(f"## [{title[1] if title else source}](../{source})\n")
            entries = [(f'<a id="{anchor(source, row)}"></a>{row.cells[0]}', _tests(row)) for row in found]
            parts.append(table(("Row", COLUMN), entries))
    return "\n".join(parts)


def page_of_or_none(path: str) -> str | None:
    """Return the page of evidence for a page; None if it has none."""
    return next((name for name, (_, parts) in PAGES.items() if path.startswith(parts)), None)


def anchor(path: str, row: Row) -> str:
    """Return the anchor of a row on its page of evidence."""
    return f"{re.sub(r'[^a-z]+', '-', path.removesuffix('.md'))}-{row.line + 1}"


def with_links(markdown: str, path: str) -> str:
    """Return a page for the site: links replace the tests and their footnotes."""
    lines = markdown.splitlines()
    for row in evidence(markdown):
        upwards = "../" * path.count("/")
        link = f"[tests]({upwards}{page_of(path)}#{anchor(path, row)})" if row.cells[-1] else ""
        lines[row.line] = f"| {' | '.join([*row.cells[:-1], link])} |"
    return _FOOTNOTE.sub("", "\n".join(lines) + "\n")


def _tests(row: Row) -> str:
    words = re.findall(r"`([^`]+)`", row.cells[-1])
    return "<br>".join(f"`{word}`{_where(word)}" for word in words) or "none"


def _where(word: str) -> str:
    file = _files().get(word.partition("[")[0])
    return f" ({file})" if file else ""


@cache
def _files() -> Mapping[str, str]:
    """Return the file of each test, by the test's name."""
    return {
        name: path.relative_to(TESTS.parent).as_posix()
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
