"""Every generated page: its path in the site, and what makes it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from docs.generate import coming_from, commands, events, evidence, metrics, packages, provisioner, settings

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "reference/settings.md": settings.page,
    "reference/metrics.md": metrics.page,
    "reference/provisioner.md": provisioner.page,
    "reference/events.md": events.page,
    "reference/command-line.md": commands.page,
    "explanation/source.md": packages.page,
    "how-to/coming-from.md": coming_from.page,
    **{name: partial(evidence.page, name) for name in evidence.PAGES},
}
