"""Removal of jobs' leftovers outside of their containers, before the next job.

Root removes them from the pilot container (from_pilot.py). Without root, the jobs' own user does it in the payload
container (from_payload.py). tidy (payload_init/tidy.c) does the work of both.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from k8spilot.common.aio import first_of, is_set
from k8spilot.common.errors import ImageError, PayloadLost, PilotError, Shortage
from k8spilot.payload.listeners import CLOSED_SECONDS, SHORTAGE_SECONDS
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

SHARED: Final = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108 -- the point is to clean them
"""Folders that all containers of a pod share."""
SCRUB_SECONDS: Final = 120.0
"""Seconds for tidy to remove all leftovers. A second attempt continues after the first."""
UNLOCK_SECONDS: Final = 10.0
"""Seconds to unlock a job's files. Files that are still locked then are not transferred."""
ARRIVE_SECONDS: Final = 3.0
"""Seconds to wait for payload-init, which is expected after a job's abnormal end or during a change of the image."""
_RESCUE_SECONDS: Final = 30.0
_CLEAR_SECONDS: Final = 5.0


class Scrubber(Protocol):
    """Remover of jobs' leftovers."""

    async def before_files(self) -> None:
        """Remove what can be removed before HTCondor transfers the next job's files, while no job has a container.

        Raises:
            PilotError: a leftover cannot be removed.
        """

    async def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor left. Call it before HTCondor creates the next job's.

        Raises:
            PilotError: one cannot be removed.
        """

    async def clean(self, channel: Channel) -> None:
        """Remove all leftovers. `channel` is that of a fresh container; no process of a job is left.

        Raises:
            ImageError: the image has a link or file in place of a folder.
            PilotError: a leftover cannot be removed; the container must not run another job.
        """

    async def rescue(self, channel: Channel | None) -> None:
        """End the processes of a lost job that have outlived its container, which the runtime may leave running.

        CRI-O does so, because the pod's containers share their process namespace (supervisor/predecessor.py).

        Args:
            channel: that of the next container; None if the scrubber needs no container.

        Raises:
            PilotError: a process or file could not be removed; the next job's clean-up tries again.
        """

    @property
    def needs_container(self) -> bool:
        """Whether only a container can unlock a job's sandbox; for a lost job, the next container."""

    async def unlock(self, channel: Channel) -> None:
        """Make locked files in the job's sandbox readable for HTCondor, when no process of the job is left.

        Raises:
            PilotError: it failed or took too long; files that are still locked are not transferred.
        """


async def clear(channel: Channel) -> bool:
    """Let payload-init end all other processes of its user in the pod, and return whether it did.

    A search through the processes one by one misses those that replace themselves continuously.

    Raises:
        PayloadLost: the container has ended.
    """
    cleared = channel.clear()
    await first_of(cleared, channel.closed, seconds=_CLEAR_SECONDS)
    return is_set(cleared)


def stays_locked(why: str) -> PilotError:
    """Return the error of a failed `unlock`."""
    return PilotError(
        f"files that the job locked in its sandbox cannot be unlocked ({why}); outputs in locked folders may be lost"
    )


class ScrubRunner:
    """Runs a scrubber, one call at a time, and closes the slot if leftovers stay.

    Args:
        scrubber: does the work.
        close: called if leftovers stay, which would affect the next job as well, with the number of seconds for which
            the slot takes no job.
    """

    def __init__(self, scrubber: Scrubber, close: Callable[[float], object]) -> None:
        self._scrubber = scrubber
        self._close = close
        self._lock = asyncio.Lock()

    @property
    def needs_container(self) -> bool:
        """Whether the removal needs a container; see `Scrubber`."""
        return self._scrubber.needs_container

    async def before_files(self) -> None:
        """Remove what can be removed before the next job has a container. Call it when no job runs.

        Raises:
            PayloadLost: a leftover stays.
        """
        await self._once(self._scrubber.before_files)

    async def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor left. Call it before HTCondor creates the next job's.

        Raises:
            PayloadLost: a sandbox stays.
        """
        await self._once(self._scrubber.remove_sandboxes)

    async def clean(self, channel: Channel) -> None:
        """Remove all leftovers. `channel` is that of a fresh container.

        Raises:
            ImageError: the container's image does not allow it.
            PayloadLost: a leftover stays.
        """
        await self._once(lambda: self._scrubber.clean(channel))

    async def rescue(self, coming: Callable[[], Awaitable[Channel]]) -> None:
        """End what a lost job has left, and unlock its sandbox while its starter still waits.

        Args:
            coming: waits for the next container.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESCUE_SECONDS):
                channel = await coming() if self.needs_container else None
                async with self._lock:  # the next job starts after `clean`, and so after this
                    try:
                        await self._scrubber.rescue(channel)
                    except PilotError as error:
                        logger.info("%s.", error)

    async def _once(self, work: Callable[[], Awaitable[None]]) -> None:
        async with self._lock:  # never in parallel with a thread of an abandoned start
            try:
                await work()
            except ImageError:
                raise
            except PilotError as error:
                self._close(SHORTAGE_SECONDS if isinstance(error, Shortage) else CLOSED_SECONDS)
                raise PayloadLost(f"{error}; this job is not at fault, and goes back to the queue") from error
