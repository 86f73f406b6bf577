"""Work that goes on beside the jobs for as long as the engine runs: metrics, Events, notices."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 60.0


async def restarting(work: Callable[[], Awaitable[None]], what: str, *, may_end: bool = False) -> None:
    """Do `work`, and begin again when it fails: an engine that ends would take its job along.

    Work that ends by itself is a fault as well, and begins again, unless it `may_end`.
    """
    while True:
        try:
            await work()
        except Exception:
            logger.exception("%s failed; this is a fault of k8spilot. It begins again.", what.capitalize())
        else:
            if may_end:
                return
            logger.error("%s ended by itself; this is a fault of k8spilot. It begins again.", what.capitalize())
        await asyncio.sleep(_AGAIN_SECONDS)
