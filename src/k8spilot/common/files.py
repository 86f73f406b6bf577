"""Files that are replaced atomically, and the folder of the image's own programs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LIBEXEC: Final = Path("/opt/k8spilot/libexec")
"""Folder of k8spilot's compiled programs in the image."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Yield a free path beside `target`. What is there at the end of the context replaces `target` atomically.

    After a failure `target` stays as it is.
    """
    aside = target.with_name(f".{target.name}.new")
    aside.unlink(missing_ok=True)
    yield aside
    os.replace(aside, target)  # noqa: PTH105 -- atomic


def write(target: Path, text: str, mode: int) -> None:
    """Replace a file atomically."""
    with replaced(target) as aside, os.fdopen(os.open(aside, _NEW, 0o600), "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)


def link(place: Path, target: Path) -> None:
    """Make `place` a link to `target`, in place of what is there, atomically."""
    with replaced(place) as aside:
        aside.symlink_to(target)
