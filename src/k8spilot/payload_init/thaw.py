"""The end of a payload-init that its job has stopped."""

import asyncio
import logging
from typing import Final

from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.process import is_stopped

logger = logging.getLogger(__name__)

_THAW_SECONDS: Final = 2.0
_THAW_LOOKS: Final = 8
"""Looks at a payload-init that does not end, and is not stopped, before it is killed."""


async def thaw(channel: Channel | None) -> bool:
    """Kill a payload-init that its job has stopped: the kubelet would wait for the pod's whole grace period.

    Returns:
        Whether it ended by itself.
    """
    if channel is None or channel.gone.done():
        return False
    for _ in range(_THAW_LOOKS):
        await asyncio.wait([channel.gone], timeout=_THAW_SECONDS)
        if channel.gone.done():
            return True
        if is_stopped(channel.pid):
            break  # else the kubelet may not have come to it: it changes a pod's containers one after another
    logger.warning("%r does not end after SIGTERM; killing it.", channel)
    channel.kill()
    return False
