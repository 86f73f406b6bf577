"""When to try again with an API server, or a registry, that did not do its part."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from k8spilot.common.errors import ClusterError, PilotError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SCATTER_SECONDS: Final = 45.0
"""Over this time pilots that have lost a server at one moment, and do not need it now, come back to it."""
_LONGEST_SECONDS: Final = 300.0
"""A Retry-After that asks for more does not put the pilot out of order for good."""


class BackOff:
    """Pauses that double, of which a random part is taken: pilots that lost one server do not come back together."""

    def __init__(self, first: float, most: float) -> None:
        self._first = self._wait = first
        self._most = most

    def reset(self) -> None:
        """Begin with short pauses again."""
        self._wait = self._first

    def pause(self, error: BaseException | None = None) -> float:
        """Seconds to wait after `error`; what the server asks for (Retry-After) comes first."""
        asked = getattr(error, "retry_after", None) or 0.0
        wait, self._wait = self._wait, min(self._wait * 2, self._most)
        return min(asked, _LONGEST_SECONDS) + wait * random.uniform(0.1, 1)  # noqa: S311 -- spreads load, hides nothing

    def scatter(self) -> float:
        """Seconds to wait for who is in no hurry, after something that all pilots lose at once; long pauses follow."""
        self._wait = self._most
        return random.uniform(0, SCATTER_SECONDS)  # noqa: S311


async def retry(
    work: Callable[[], Awaitable[T]],
    seconds: float,
    back_off: BackOff | None = None,
    passing: type[PilotError] = ClusterError,
) -> T:
    """Do `work` until it succeeds, again and again for `seconds` where `passing` is the reason.

    Raises:
        PilotError: the last one that is `passing`, when time is up.
    """
    back_off = back_off or BackOff(0.5, 10.0)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        try:
            return await work()
        except passing as error:
            pause = back_off.pause(error)
            if loop.time() + pause > until:
                raise
            logger.warning("%s; trying again in %.1f s.", error, pause)
            await asyncio.sleep(pause)
