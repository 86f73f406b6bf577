"""Pilot pods that all workers of a session share: one of each configuration serves tests of many modules.

A module takes a pilot as a lease, and has it for itself until the module's last test. Each pilot has a file of the lab,
whose lock (flock) is the lease: it ends with the process that has it. A lease of a configuration whose pilots
are all taken deploys another one. `sessions` removes them with all else that the session has deployed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from lab import jobs, pilot
from lab.api import Lab
from lab.errors import LabError
from tests.runner.sessions import lock

_MOST: Final = 50
"""Pilots of one configuration; more tests at a time than any machine runs."""


def in_pool(lab: Lab, name: str) -> None:
    """Wait until a pilot can be matched."""
    jobs.wait_in_pool(lab, name)


@dataclass(frozen=True)
class Configuration:
    """Configuration of a pilot. Its name says all of it: two configurations never have one name."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    overlay: Mapping[str, Any] = field(default_factory=dict)
    ready: Callable[[Lab, str], None] = in_pool
    """Returns when a deployed pilot can be used."""


@dataclass
class Lease:
    """A pilot for the tests of a module."""

    pod: str
    is_fit: bool = True
    """Set to False when a test failed: the next lease does not trust the pilot and deploys it again."""


class Pilots:
    """The pilots of one session, seen from one of its processes. Methods raise LabError."""

    def __init__(self, lab: Lab, prefix: str) -> None:
        """`prefix` keeps checkouts apart that share one lab."""
        self._lab = lab
        self._session = lab.settings.session
        self._prefix = prefix
        self._folder = lab.settings.overlays.parent / "test-pilots" / (prefix or "-")
        self._folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lease(self, configuration: Configuration) -> Iterator[Lease]:
        """Have a pilot of that configuration, at the lab's level, for the body alone."""
        lab = self._lab
        stem = f"{configuration.name}-{self._prefix}" + ("" if lab.level == "baseline" else f"{lab.level}-")
        with ExitStack() as undo:
            for number in range(_MOST):
                name = f"{stem}{number}"
                if (file := _locked(self._folder / name)) is not None:
                    undo.enter_context(file)
                    break
            else:
                raise LabError(f"all {_MOST} pilots of {configuration.name} are taken")
            lease = Lease(name)
            if not self._is_usable(file, name):
                _write(file, {})
                pilot.deploy(lab, name, configuration.environment, configuration.overlay)
                configuration.ready(lab, name)
                _write(file, {"session": self._session})
            try:
                yield lease
            finally:
                if not lease.is_fit:
                    _write(file, {})

    def _is_usable(self, file: IO[str], name: str) -> bool:
        """Whether this session has deployed it, and it runs."""
        if _read(file).get("session") != self._session:
            return False
        with suppress(LabError):
            return pilot.runs(self._lab, name)
        return False


def _locked(path: Path) -> IO[str] | None:
    """The open file at `path`, locked; None if another process has it."""
    file = path.open("a+")
    if lock(file):
        return file
    file.close()
    return None


def _read(file: IO[str]) -> dict[str, str]:
    file.seek(0)
    try:
        found: dict[str, str] = json.loads(file.read() or "{}")
    except ValueError:
        return {}
    return found


def _write(file: IO[str], facts: Mapping[str, str]) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(facts))
    file.flush()
