"""What others are told of images that are slow to come, or do not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from k8spilot.errors import ImageNotNow
from k8spilot.model.reference import Reference

_SLOW_SECONDS: Final = 3.0
"""A bind that takes longer is a pull, and users are told of it."""

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]], str], asyncio.Future[None]]
"""Starts a guarded task with a name."""


class Notices:
    """Who is told; here, nobody. condor/slot.py tells the pool."""

    async def pulling(self, reference: Reference) -> None:
        """Tell that the image is on its way, and that this takes a while."""

    async def pulled(self) -> None:
        """Tell that it is there, or will not come."""

    async def unavailable(self, reference: Reference) -> None:
        """Tell that its registry did not give it, and that the job is not to blame."""


@asynccontextmanager
async def told(notices: Notices, reference: Reference, spawn: Spawn) -> AsyncIterator[None]:
    """Tell of a bind that the context makes."""
    telling = spawn(lambda: _tell_of_slow(notices, reference), "notice")
    try:
        yield
    except ImageNotNow:
        spawn(lambda: notices.unavailable(reference), "notice")
        raise
    finally:
        telling.cancel()


async def _tell_of_slow(notices: Notices, reference: Reference) -> None:
    await asyncio.sleep(_SLOW_SECONDS)
    try:
        await notices.pulling(reference)
        await asyncio.Event().wait()  # until it is cancelled, at the end of the bind
    finally:
        await notices.pulled()
