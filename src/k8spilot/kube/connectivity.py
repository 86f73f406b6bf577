"""Present faults of the Kubernetes API, and their start."""

import asyncio
from collections.abc import Callable
from typing import Literal

from k8spilot.common.errors import ClusterError
from k8spilot.kube.watch_stream import SILENCE_SECONDS


class Connectivity:
    """Faults of the own pod's watch and of its changes, for tasks that wait for their start or end."""

    def __init__(self, heard: Callable[[], float | None]) -> None:
        self.since: float | None = None
        """Start of the fault (the event loop's clock, seconds); None without a fault."""
        self.returned: Callable[[float], None] = lambda _: None
        """Called at the end of all faults, with their duration in seconds."""
        self._heard = heard
        """Returns the time of the API server's last message."""
        self._words: dict[str, str] = {}
        self._changed = asyncio.Condition()

    @property
    def fault(self) -> str:
        """Reason why no image can be bound at present, as far as known; empty if all works."""
        return "; ".join(self._words.values())

    async def lasting(self, seconds: float) -> ClusterError:
        """Wait until a fault has lasted for `seconds`, and return the error that describes it."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._words)
            try:
                async with asyncio.timeout(seconds):
                    await self.over()
            except TimeoutError:
                return ClusterError(f"the Kubernetes API has been unavailable for {seconds:.0f} s ({self.fault})")

    async def over(self) -> None:
        """Wait until there is no fault."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._words)

    async def note(self, what: Literal["watch", "patch"], words: str) -> None:
        """Record why `what` does not work, or, with empty words, that it works."""
        if words == self._words.get(what, ""):
            return
        async with self._changed:
            if words:
                self._words[what] = words
            else:
                self._words.pop(what, None)  # another task may have removed it
            self._changed.notify_all()
        now, heard = asyncio.get_running_loop().time(), self._heard()
        if self._words and self.since is None:
            # The server may have been silent long before this was noticed.
            self.since = heard if heard is not None and now - heard >= SILENCE_SECONDS else now
        elif not self._words and self.since is not None:
            seconds, self.since = now - self.since, None
            self.returned(seconds)
