"""Tables in Markdown: written, and read from pages."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

NAMES: Final = '<div class="names" markdown>\n\n{}\n</div>\n'
"""Markup around a table whose first column has names that are not to be broken (style.css)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, and its place."""

    line: int
    """Its line in the page, from 0."""
    section: str
    """The title above it."""
    header: tuple[str, ...]
    cells: tuple[str, ...]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with the characters that would end a cell escaped."""
    lines = [header, ["---"] * len(header), *([_cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def rows(markdown: str) -> Iterator[Row]:
    """Yield every row of every table of a page; tables in code blocks do not count."""
    section = ""
    header: tuple[str, ...] = ()
    in_code = False
    lines = markdown.splitlines()
    for number, line in enumerate(lines):
        in_code ^= line.lstrip().startswith("```")
        if in_code:
            continue
        if title := re.match(r"#+ (.*)", line):
            section = title[1]
        if not line.startswith("|"):
            header = ()
        elif not header:
            header = cells_of(line)
        elif not re.fullmatch(r"[|:\- ]+", line):
            yield Row(number, section, header, cells_of(line))


def cells_of(line: str) -> tuple[str, ...]:
    """Return the cells of a line of a table."""
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))
