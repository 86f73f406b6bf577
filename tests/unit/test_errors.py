"""The documented table of errors of `docker create` agrees with the code: their effects on a job, class by class."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from docs.generate.tables import rows
from k8spilot.common import errors
from k8spilot.common.errors import BindError, NotHere, NotNow, PilotError, Refused
from k8spilot.docker.store import ContainerStore
from k8spilot.telemetry.slot_recorder import _bind_result, _hold_class
from lab.settings import CHECKOUT

PAGE = CHECKOUT / "docs/explanation/life-of-a-job.md"
GENERAL = {BindError, NotNow, Refused}
"""Classes that are raised themselves, and have subclasses."""


def _classes() -> Iterator[type[PilotError]]:
    """Yield the errors of `docker create`, without the bases that nothing raises."""
    for name, kind in vars(errors).items():
        is_error = inspect.isclass(kind) and issubclass(kind, BindError | Refused)
        if is_error and not name.startswith("_") and kind is not NotHere:
            yield kind


def _row(kind: type[PilotError]) -> tuple[str, ...]:
    error = kind("words")
    fates, result = ["held", "held"], ""
    if isinstance(error, BindError):
        stores = [cast("Any", SimpleNamespace(_holds_refused=holds)) for holds in (False, True)]
        fates = ["queue" if ContainerStore.requeues(store, error) else "held" for store in stores]
        result = f"`{_bind_result(error)}`"
    hold_class = f"`{_hold_class(error)}`" if "held" in fates else ""
    return (f"{'other ' if kind in GENERAL else ''}`{kind.__name__}`", *fates, result, hold_class)


def test_the_table_of_errors_is_the_codes() -> None:
    documented = {tuple(row.cells) for row in rows(PAGE.read_text()) if row.header[0] == "Error"}
    assert documented == {_row(kind) for kind in _classes()}
