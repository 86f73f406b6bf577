"""Exponential backoff with jitter, and retries, for requests to the API server and to registries.

Ours, and no library's: what a server asks for (Retry-After) comes first, and pilots that lose one server at one
moment come back to it spread over a time. tenacity has neither, and takes 0.35 MiB of the engine (Rss, Python 3.11).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from k8spilot.common.errors import ClusterError, PilotError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SPREAD_SECONDS: Final = 45.0
"""Over this time pilots that have lost a server at one moment, and do not need it now, come back to it."""
_LONGEST_SECONDS: Final = 300.0
"""A Retry-After that asks for more does not put the pilot out of order for good."""


class BackOff:
    """Delays that double, with jitter: pilots that lost one server do not come back together."""

    def __init__(self, initial: float, maximum: float) -> None:
        """Both in seconds, before the jitter."""
        self._initial = self._next = initial
        self._maximum = maximum

    def reset(self) -> None:
        """Begin with short delays again."""
        self._next = self._initial

    def delay(self, error: BaseException | None = None) -> float:
        """Seconds to wait after `error`; what the server asks for (Retry-After) comes first."""
        asked = getattr(error, "retry_after", None) or 0.0
        now, self._next = self._next, min(self._next * 2, self._maximum)
        return min(asked, _LONGEST_SECONDS) + now * random.uniform(0.1, 1)  # noqa: S311 -- spreads load, hides nothing

    def spread(self) -> float:
        """Seconds to wait, without hurry, after something that all pilots lose at once; long delays follow."""
        self._next = self._maximum
        return random.uniform(0, SPREAD_SECONDS)  # noqa: S311


async def retry(
    work: Callable[[], Awaitable[T]],
    seconds: float,
    back_off: BackOff | None = None,
    retry_on: type[PilotError] = ClusterError,
) -> T:
    """Do `work` until it succeeds, again for `seconds` while it fails with `retry_on`.

    Raises:
        PilotError: the last one that is a `retry_on`, when time is up.
    """
    back_off = back_off or BackOff(0.5, 10.0)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        try:
            return await work()
        except retry_on as error:
            delay = back_off.delay(error)
            if loop.time() + delay > until:
                raise
            logger.warning("%s; trying again in %.1f s.", error, delay)
            await asyncio.sleep(delay)
