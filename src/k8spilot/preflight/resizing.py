"""Trial of a partitionable slot's sizes: whether this cluster and this node resize the payload containers."""

import asyncio
from typing import Final

from k8spilot.common.aio import side_by_side
from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import Api
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.resize import ResizeRefused, actual_limits, delay, limits_of, resize, room, wanted_size
from k8spilot.model.slot_sizes import Size
from k8spilot.preflight.finding import Finding, good, warning
from k8spilot.settings import Settings

_SECONDS: Final = 20.0
"""Seconds for the kubelet to resize a container and to show it; it needs less than two."""
_CHECK: Final = "slot sizes"


async def why_equal(settings: Settings, api: Api, *, runs: bool) -> str:
    """Give a payload container one MiB more. Return why that fails; empty if the pod's status shows it.

    Args:
        settings: settings of the pilot.
        api: the Kubernetes API.
        runs: whether a pilot may run here already. Then no container changes: the API server is asked only.

    Raises:
        ClusterError: the Kubernetes API is not available.
    """
    try:
        return await _trial(settings, api, runs=runs)
    except TimeoutError:
        raise ClusterError("the Kubernetes API did not return the own pod") from None


def sizes_finding(settings: Settings, why: str) -> Finding:
    """Return the finding about the sizes of slots; `why` is the reason for equal ones."""
    if not why:
        return good(_CHECK, "each payload container gets the size of its job")
    return warning(_CHECK, equal_slots(settings, why))


def equal_slots(settings: Settings, why: str) -> str:
    """Return the sentence about slots that are equal although the manifest asks for a partitionable one."""
    return f"the pilot has {len(settings.slots)} slots of equal size instead of a partitionable slot: {why}"


async def _trial(settings: Settings, api: Api, *, runs: bool) -> str:
    pod = OwnPod(api, settings.pod_namespace, settings.pod_name, settings.pod_uid)
    names = [slot.container for slot in settings.slots]
    async with side_by_side(pod.follow()):
        async with asyncio.timeout(_SECONDS):
            await pod.until(lambda found: found)
        shared = room(pod.pod, names)
        if shared is None:
            return (
                "the pod has no resources of its own for all payload containers (spec.resources), because the "
                "manifest sets none or Kubernetes is older than 1.34"
            )
        name = names[0]
        before = wanted_size(pod.pod, name, shared)
        if before is None:
            return f"the container {name} has no requests and limits of cpu and memory"
        try:
            await resize(pod, {name: before}, shared, dry_run=True)
            if not runs:  # less memory would need a measurement of its use, which can take a minute
                more = Size(before.cpu, before.memory + 1)
                await resize(pod, {name: more}, shared)
                return await _shown(pod, name, more)
        except ResizeRefused as error:
            return str(error)
    return ""


async def _shown(pod: OwnPod, name: str, size: Size) -> str:
    """Wait until the status shows a container's size. Return why it does not, or an empty text."""
    try:
        async with asyncio.timeout(_SECONDS):
            await pod.until(lambda found: actual_limits(found, name) == limits_of(size) or None)
    except TimeoutError:
        return delay(pod.pod) or f"the pod's status does not show a resized container within {_SECONDS:.0f} s"
    return ""
