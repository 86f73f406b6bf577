"""The time that a deletion of the own pod leaves: `kubectl delete --grace-period`, or an eviction that shortens it."""

import asyncio
import logging
from collections.abc import Callable

from k8spilot.kube.own_pod import OwnPod

logger = logging.getLogger(__name__)


async def watch_deletion(pod: OwnPod, *, enough: float, last: float, act: Callable[[], None]) -> None:
    """Call `act` when a grace period that is too short is nearly over; do nothing else, ever.

    An end of the kubelet's own making (a node that runs out of memory or disk, or is shut down) is not told in the API.

    Args:
        pod: the own pod, as it is followed.
        enough: seconds in which everything ends by itself.
        last: seconds before the end at which to act.
        act: what to do.
    """
    grace = await pod.until(lambda pod: _less(_grace(pod), enough))  # a second deletion may leave less than the first
    logger.warning("The pod is deleted with %d s of grace, and %.0f s are needed for every job.", grace, enough)
    await asyncio.sleep(max(0.0, grace - last))
    logger.warning("Its time is nearly over: jobs are killed now.")
    act()


def _less(grace: int | None, enough: float) -> int | None:
    return grace if grace is not None and grace < enough else None


def _grace(pod: "dict[str, object]") -> int | None:
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict) or "deletionTimestamp" not in metadata:
        return None
    return int(metadata.get("deletionGracePeriodSeconds", 0))
