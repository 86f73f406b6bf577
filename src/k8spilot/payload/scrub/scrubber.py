"""The removal of what jobs leave outside of their containers, before another job comes.

Root does it from the pilot container (from_pilot.py). Where nobody is root, the jobs' own user does it in the payload
container (from_payload.py). Both have tidy (payload_init/tidy.c) do the work.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from k8spilot.common.errors import ImageError, PayloadLost, PilotError, Shortage
from k8spilot.payload.listeners import CLOSED_SECONDS, SHORTAGE_SECONDS
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

SHARED: Final = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108 -- the point is to clean them
"""What all containers of a pod share."""
SCRUB_SECONDS: Final = 120.0
"""For tidy to remove all that is left. What it has removed by then need not be removed again."""
UNLOCK_SECONDS: Final = 10.0
"""A job that locks more than can be unlocked in this time does not get the rest of it back."""
ARRIVE_SECONDS: Final = 3.0
"""When the last job ended badly, or the image is just being changed, payload-init is about to come."""
_RESCUE_SECONDS: Final = 30.0


class Scrubber(Protocol):
    """Puts right what jobs leave."""

    async def before_files(self) -> None:
        """Remove what can be removed before HTCondor brings the next job's files; no job has a container.

        Raises:
            PilotError: something cannot be removed.
        """

    async def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor has left. To be called before it makes the next job's.

        Raises:
            PilotError: one cannot be removed.
        """

    async def clean(self, channel: Channel) -> None:
        """Remove all that jobs left. `channel` is that of a fresh container; no process of a job is left.

        Raises:
            ImageError: where it is to be removed, this image has something else.
            PilotError: something cannot be removed; the container must not be given to another job.
        """

    @property
    def needs_container(self) -> bool:
        """Whether a job's sandbox can be unlocked in a container only; that of a lost job, in the next one."""

    async def unlock(self, channel: Channel) -> None:
        """Let HTCondor read what the job locked in its sandbox, when no process of the job is left.

        Raises:
            PilotError: that failed, or took too long; what is locked still does not come back.
        """


def stays_locked(why: str) -> PilotError:
    """The error of an `unlock` that failed."""
    return PilotError(
        f"what the job locked in its sandbox cannot be given back ({why}); outputs in locked folders may be lost"
    )


class Scrubbing:
    """Runs a scrubber, one call at a time, and closes the slot when something stays.

    Args:
        scrubber: does the work.
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
