"""Waits of tests for conditions that no event announces."""

import asyncio
from collections.abc import Callable

from lab.patience import scaled


async def eventually(condition: Callable[[], object], seconds: float = 15.0) -> None:
    """Wait until `condition` holds, while the event loop runs.

    Raises:
        TimeoutError: it does not hold within so many seconds of a machine of usual speed.
    """
    async with asyncio.timeout(scaled(seconds)):
        while not condition():  # noqa: ASYNC110 -- there is no event to wait for
            await asyncio.sleep(0.01)
