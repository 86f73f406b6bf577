"""Followers of HTCondor's logs that record whether they wait for new lines."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import pytest

from k8spilot.condor.daemons import logs
from k8spilot.condor.daemons.log_follower import LogFollower


class _Change(asyncio.Event):
    """Event for a change of a log, which records whether the reader waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = False

    async def wait(self) -> Literal[True]:
        self.is_awaited = True
        return await super().wait()


class ObservedFollower(LogFollower):
    """A follower that says whether it has passed the old lines. It reports all lines that are written after that."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        super().__init__(folder, names)
        self._observed = {name: _Change() for name in self._changed}
        self._changed.update(self._observed)

    @property
    def waits(self) -> bool:
        """Whether each log has been read to its end, or found missing."""
        return all(change.is_awaited for change in self._observed.values())


def observe_followers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Make `copy_logs` use observed followers; return a function that says whether the latest follower waits."""
    followers: list[ObservedFollower] = []

    def follower(folder: Path, names: Iterable[str]) -> ObservedFollower:
        followers.append(ObservedFollower(folder, names))
        return followers[-1]

    monkeypatch.setattr(logs, "LogFollower", follower)
    return lambda: bool(followers) and followers[-1].waits
