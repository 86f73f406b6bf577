"""What earlier jobs have left outside of their containers goes before another one comes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from k8spilot.common.errors import ImageError, PayloadLost, PilotError, Shortage
from k8spilot.payload.listeners import CLOSED_SECONDS, SHORTAGE_SECONDS
from k8spilot.payload.scrub.scrubbers import Scrubber
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_RESCUE_SECONDS: Final = 30.0


class Scrubbing:
    """The removal, once at a time.

    Args:
        cleaner: who removes it.
        close: called when something stays, with which the next job would fare no better; with the seconds for which no
            job is to come.
    """

    def __init__(self, scrubber: Scrubber, close: Callable[[float], object]) -> None:
        self._scrubber = scrubber
        self._close = close
        self._lock = asyncio.Lock()

    async def before_files(self) -> None:
        """Remove what can be removed before there is a container for the next job. To be called when no job runs.

        Raises:
            PayloadLost: something stays.
        """
        await self._once(self._scrubber.before_files)

    async def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor has left. To be called before it makes the next job's.

        Raises:
            PayloadLost: one stays.
        """
        await self._once(self._scrubber.remove_sandboxes)

    async def clean(self, channel: Channel) -> None:
        """Remove all of it. `channel` is that of a fresh container.

        Raises:
            ImageError: the container's image is not one in which that can be done.
            PayloadLost: something stays.
        """
        await self._once(lambda: self._scrubber.clean(channel))

    async def rescue(self, coming: Awaitable[Channel]) -> None:
        """Unlock the sandbox of a job that was lost, in the container that comes while its starter still waits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESCUE_SECONDS):
                channel = await coming
                try:
                    await self._scrubber.unlock(channel)
                except PilotError as error:
                    logger.info("%s.", error)

    async def _once(self, work: Callable[[], Awaitable[None]]) -> None:
        async with self._lock:  # not beside a thread of a start that was given up
            try:
                await work()
            except ImageError:
                raise
            except PilotError as error:
                self._close(SHORTAGE_SECONDS if isinstance(error, Shortage) else CLOSED_SECONDS)
                raise PayloadLost(f"{error}; this job is not to blame, and goes back to the queue") from error
