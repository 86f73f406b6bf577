"""The user whose jobs the pool worker looks at: if the worker dies or hangs then, an expression of theirs did it.

The worker writes the name into a file, and the provisioner reads it after the worker's end. While an access point
answers, it has the access point's name: the answer may be too large.
"""

import mmap
from pathlib import Path
from typing import Final

_BYTES: Final = 1024
_ACCESS_POINT: Final = "access point "
"""Prefix of access points; a user's name has no space."""
_map: mmap.mmap | None = None


def of_access_point(name: str) -> str:
    """Return how an access point is named here."""
    return _ACCESS_POINT + name


def access_point_in(suspect: str) -> str:
    """Return the name of the access point in a name; empty if it is a user's."""
    return suspect.removeprefix(_ACCESS_POINT) if suspect.startswith(_ACCESS_POINT) else ""


def begin(file: Path) -> None:
    """Let the worker write names into `file`."""
    global _map  # noqa: PLW0603 -- the process is one worker
    file.write_bytes(bytes(_BYTES))
    with file.open("r+b") as opened:
        _map = mmap.mmap(opened.fileno(), _BYTES)


def name(user: str) -> None:
    """Note the user whose jobs are looked at now; an empty name afterwards."""
    if _map is not None:
        _map[:] = user.encode()[: _BYTES - 1].ljust(_BYTES, b"\0")


def read(file: Path) -> str:
    """Return the name in `file`; empty if the worker was at nobody's jobs."""
    try:
        return file.read_bytes().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""
