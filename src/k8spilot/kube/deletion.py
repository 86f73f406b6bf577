"""Grace period of a deletion of the own pod: `kubectl delete --grace-period`, or an eviction that shortens it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import disruption, is_deleted

logger = logging.getLogger(__name__)


async def watch_deletion(pod: OwnPod, *, enough: float, last: float, act: Callable[[], None]) -> None:
    """Call `act` near the end of a grace period that is too short; do nothing else.

    The API does not show an end that the kubelet decides (a node that runs out of memory or disk, or shuts down).

    Args:
        pod: the own pod.
        enough: seconds that a regular end needs.
        last: seconds between the call of `act` and the end.
        act: called once.
    """
    grace = await pod.until(
        lambda pod: _less(_grace(pod), enough)
    )  # a second deletion may leave less time than the first
    logger.warning(
        "The pod is deleted with a grace period of %d s, but a regular end of every job needs %.0f s.", grace, enough
    )
    await asyncio.sleep(max(0.0, grace - last))
    logger.warning("The grace period is nearly over; killing the jobs.")
    act()


def deletion(pod: dict[str, Any]) -> str | None:
    """Return how a pod is deleted, a phrase, with the cause that Kubernetes names; None if it is not."""
    if not is_deleted(pod):
        return None
    cause = disruption(pod)
    return "the pod was deleted" + (f" ({cause.get('reason')}: {cause.get('message')})" if cause is not None else "")


def _less(grace: int | None, enough: float) -> int | None:
    return grace if grace is not None and grace < enough else None


def _grace(pod: "dict[str, object]") -> int | None:
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict) or "deletionTimestamp" not in metadata:
        return None
    return int(metadata.get("deletionGracePeriodSeconds", 0))
