"""Every generated page: its path in the site, and the function that makes it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from docs.generate import coming_from, commands, events, evidence, metrics, packages, provisioner, settings

DOCS: Final = Path(__file__).parents[1]
COMMAND: Final = "python -m docs.generate"
NOTE: Final = f"<!-- Made from the code by `make docs` ({COMMAND}). Do not edit this page: change the code. -->\n\n"
"""First line of a generated page in the repository."""

COMMITTED: Final[Mapping[str, Callable[[], str]]] = {
    "reference/settings.md": settings.page,
    "reference/metrics.md": metrics.page,
    "reference/provisioner.md": provisioner.page,
    "reference/events.md": events.page,
    "reference/command-line.md": commands.page,
    "explanation/source.md": packages.page,
    "how-to/coming-from.md": coming_from.page,
}
"""Pages that are files of the repository, too."""
SITE_ONLY: Final[Mapping[str, Callable[[], str]]] = {name: partial(evidence.page, name) for name in evidence.PAGES}
"""Pages that only the site has; they are made whenever it is built."""


def content(name: str) -> str:
    """Return the whole file of a page of `COMMITTED`."""
    return f"{NOTE}{COMMITTED[name]().rstrip()}\n"


def write() -> None:
    """Write the pages that are files of the repository."""
    for name in COMMITTED:
        (DOCS / name).write_text(content(name))


def stale() -> list[str]:
    """Return a sentence for each file that differs from the generated page."""
    return [message for name in COMMITTED if (message := difference(name))]


def difference(name: str) -> str:
    """Return the sentence for one page of `COMMITTED`; empty if the file is up to date."""
    path = DOCS / name
    if path.exists() and path.read_text() == content(name):
        return ""
    return f"docs/{name} is not what the code gives: renew it by `make docs` ({COMMAND}), and commit it."
