"""What asyncio lacks: tasks that begin again, and waits for the first of several futures."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 60.0


async def restarting(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Do `work`, and begin again when it fails: an engine that ends would take its job along.

    It is for what goes on beside the jobs, and is not worth one: metrics, Events, notices.
    """
    while True:
        try:
            return await work()
        except Exception:
            logger.exception("%s failed; this is a fault of k8spilot. It begins again.", what.capitalize())
        await asyncio.sleep(_AGAIN_SECONDS)


async def first_of(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of `futures` is done, or time is up."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def is_set(future: asyncio.Future[Any]) -> bool:
    """Whether `future` has a result."""
    return future.done() and not future.cancelled()
