"""Pauses between attempts to use a failing API server or registry."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from k8spilot.common.errors import ClusterError, PilotError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SCATTER_SECONDS: Final = 45.0
"""Seconds over which pilots reconnect that lost a server at the same moment and do not need it now."""
_LONGEST_SECONDS: Final = 300.0
"""Limit of a Retry-After in seconds: a larger value must not disable the pilot."""


class BackOff:
    """Doubling pauses with a random part, so that pilots that lost one server do not return together."""

    def __init__(self, first: float, most: float) -> None:
        self._first = self._wait = first
        self._most = most

    def reset(self) -> None:
        """Return to short pauses."""
        self._wait = self._first

    def pause(self, error: BaseException | None = None) -> float:
        """Return the seconds to wait after `error`, at least the server's Retry-After."""
        requested = getattr(error, "retry_after", None) or 0.0
        wait, self._wait = self._wait, min(self._wait * 2, self._most)
        return min(requested, _LONGEST_SECONDS) + wait * random.uniform(0.1, 1)  # noqa: S311 -- spreads load, hides nothing

    def scatter(self) -> float:
        """Return the seconds to wait after a loss that affects all pilots at once, if there is no hurry.

        Long pauses follow.
        """
        self._wait = self._most
        return random.uniform(0, SCATTER_SECONDS)  # noqa: S311


async def retry(
    work: Callable[[], Awaitable[T]],
    seconds: float,
    back_off: BackOff | None = None,
    passing: type[PilotError] = ClusterError,
) -> T:
    """Do `work` until it succeeds; repeat it for `seconds` after errors of the type `passing`.

    Raises:
        PilotError: the last error of the type `passing`, after the time limit.
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
