"""What goes on beside the jobs, and is not worth one: metrics, Events, notices."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 60.0


async def restarting(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Do `work`, and begin again when it fails: an engine that ends would take its job along."""
    while True:
        try:
            return await work()
        except Exception:
            logger.exception("%s failed; this is a fault of k8spilot. It begins again.", what.capitalize())
        await asyncio.sleep(_AGAIN_SECONDS)
