"""The wait for the end of a payload-init, which its job may have stopped."""

import asyncio
import logging
from typing import Final

from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.process import is_stopped

logger = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 2.0
_MOST_WAITS: Final = 8
"""Number of waits for a payload-init that is not stopped, before it is killed."""


async def await_end(channel: Channel | None) -> bool:
    """Wait for the end of a payload-init whose container the kubelet ends.

    If its job has stopped it, kill it: the kubelet would wait for the pod's whole grace period.

    Returns:
        Whether it ended by itself.
    """
    if channel is None or channel.gone.done():
        return False
    for _ in range(_MOST_WAITS):
        await asyncio.wait([channel.gone], timeout=_WAIT_SECONDS)
        if channel.gone.done():
            return True
        if is_stopped(channel.pid):
            break  # else the kubelet may not have come to it: it changes a pod's containers one after another
    logger.warning("%r does not end after SIGTERM; killing it.", channel)
    channel.kill()
    return False
