"""What does not work now with the Kubernetes API, and since when."""

import asyncio
from collections.abc import Callable
from typing import Literal

from k8spilot.common.errors import ClusterError
from k8spilot.kube.watch_stream import SILENCE_SECONDS


class Connectivity:
    """What does not work of the own pod's watch and its changes, for those who wait for that to begin or to end."""

    def __init__(self, heard: Callable[[], float | None]) -> None:
        self.since: float | None = None
        """Since when something does not work (the event loop's clock, seconds); None while all does."""
        self.returned: Callable[[float], None] = lambda _: None
        """Told when that is over, and after how many seconds."""
        self._heard = heard
        """When the API server was last heard."""
        self._words: dict[str, str] = {}
        self._changed = asyncio.Condition()

    @property
    def words(self) -> str:
        """Why no image can be bound now, as far as that is known; empty when all works."""
        return "; ".join(self._words.values())

    async def lasting(self, seconds: float) -> ClusterError:
        """Wait until something has not worked for `seconds` on end; the error that says what."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._words)
            try:
                async with asyncio.timeout(seconds):
                    await self.over()
            except TimeoutError:
                return ClusterError(f"the Kubernetes API has been away for {seconds:.0f} s ({self.words})")

    async def over(self) -> None:
        """Wait until all works."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._words)

    async def note(self, what: Literal["watch", "patch"], words: str) -> None:
        """Know why `what` does not work, or, with no words, that it does."""
        if words == self._words.get(what, ""):
            return
        async with self._changed:
            if words:
                self._words[what] = words
            else:
                self._words.pop(what, None)  # another task may have done so
            self._changed.notify_all()
        now, heard = asyncio.get_running_loop().time(), self._heard()
        if self._words and self.since is None:
            # The server may have been silent for long before that was noticed.
            self.since = heard if heard is not None and now - heard >= SILENCE_SECONDS else now
        elif not self._words and self.since is not None:
            seconds, self.since = now - self.since, None
            self.returned(seconds)
