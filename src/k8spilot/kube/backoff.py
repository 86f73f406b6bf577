"""Exponential backoff with jitter, and retries, for requests to the API server and to registries.

No library has both features that are needed: the server's Retry-After has priority, and pilots that lose one server at
one moment return to it spread over a time. tenacity has neither, and takes 0.4 MiB of the engine (Rss; tenacity 9.2,
Python 3.14).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from k8spilot.common.errors import ClusterError, PilotError

logger = logging.getLogger(__name__)


SPREAD_SECONDS: Final = 45.0
"""Seconds over which pilots reconnect that lost a server at the same moment and do not need it now."""
_LONGEST_SECONDS: Final = 300.0
"""Limit of a Retry-After in seconds: a larger value must not disable the pilot."""


class BackOff:
    """Doubling delays with jitter, so that pilots that lost one server do not return together."""

    def __init__(self, initial: float, maximum: float) -> None:
        """Set the first and the longest delay, in seconds before the jitter."""
        self._initial = self._next = initial
        self._maximum = maximum

    def reset(self) -> None:
        """Return to short delays."""
        self._next = self._initial

    def delay(self, error: BaseException | None = None) -> float:
        """Return the seconds to wait after `error`, at least the server's Retry-After."""
        now, self._next = self._next, min(self._next * 2, self._maximum)
        return _requested(error) + now * random.uniform(0.1, 1)  # noqa: S311 -- spreads load, hides nothing

    def spread(self, error: BaseException | None = None) -> float:
        """Return the seconds to wait after a loss that affects all pilots at once, if there is no hurry.

        Long delays follow. The server's Retry-After is waited for, too.
        """
        self._next = self._maximum
        return _requested(error) + random.uniform(0, SPREAD_SECONDS)  # noqa: S311


def _requested(error: BaseException | None) -> float:
    """Return the seconds of the server's Retry-After; 0 without one."""
    return min(getattr(error, "retry_after", None) or 0.0, _LONGEST_SECONDS)


async def retry[T](
    work: Callable[[], Awaitable[T]],
    seconds: float,
    back_off: BackOff | None = None,
    retry_on: type[PilotError] = ClusterError,
) -> T:
    """Do `work` until it succeeds; repeat it for `seconds` after errors of the type `retry_on`.

    Raises:
        PilotError: the last error of the type `retry_on`, after the time limit.
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
