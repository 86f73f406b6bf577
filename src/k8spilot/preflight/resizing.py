"""Trial of a partitionable slot's sizes: whether this cluster and this node resize the payload containers."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from k8spilot.common.aio import side_by_side
from k8spilot.common.errors import ClusterError
from k8spilot.kube.backoff import retry
from k8spilot.kube.client import Api
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.resize import ResizeRefused, actual_limits, delay, limits_of, resize, room, wanted_size
from k8spilot.model.slot_sizes import IDLE, Size, total
from k8spilot.preflight.finding import Finding, good, warning
from k8spilot.settings import Settings

_TRIAL_SECONDS: Final = 20.0
"""Seconds for the kubelet to resize a container and to show it; it needs less than two."""
_CHECK: Final = "slot sizes"
_RECORD: Final = "equal-slots"
"""File in the exchange volume with the answer of the trial, which no job can reach."""


async def why_equal(settings: Settings, api: Api, *, runs: bool) -> str:
    """Return why the containers cannot be resized here, so that the slots are of equal size; empty if they can.

    The answer is found once in a pod's life. After a restart in place the containers may have any size.

    Args:
        settings: settings of the pilot.
        api: the Kubernetes API.
        runs: whether a pilot may run here already. Then nothing is changed: the API server is asked only.

    Raises:
        ClusterError: the Kubernetes API is not available.
    """
    record = settings.exchange / _RECORD
    with suppress(OSError):
        return record.read_text()
    if settings.overcommit:
        return "K8SPILOT_OVERCOMMIT is set, and a partitionable slot has what the pod has"
    try:
        why = await retry(partial(_trial, settings, api, runs=runs), _TRIAL_SECONDS)
    except TimeoutError:
        raise ClusterError("the Kubernetes API did not return the own pod") from None
    if not runs:
        record.write_text(why)
    return why


def sizes_finding(settings: Settings, why: str) -> Finding:
    """Return the finding about the sizes of slots; `why` is the reason for equal ones."""
    if not why:
        return good(_CHECK, "each payload container gets the size of its job")
    return warning(_CHECK, equal_slots(settings, why))


def equal_slots(settings: Settings, why: str) -> str:
    """Return the sentence about slots that are equal although the manifest asks for a partitionable one."""
    number = settings.payload_containers - settings.gpu_containers
    of_gpus = " beside those with GPUs" if settings.gpu_slots else ""
    slots = "1 slot of a fixed size" if number == 1 else f"{number} slots of equal size"
    return f"the pilot has {slots}{of_gpus} instead of a partitionable slot: {why}"


async def _trial(settings: Settings, api: Api, *, runs: bool) -> str:
    pod = OwnPod(api, settings.pod_namespace, settings.pod_name, settings.pod_uid)
    names = [slot.container for slot in settings.dynamic_slots]
    async with side_by_side(pod.run()):
        async with asyncio.timeout(_TRIAL_SECONDS):
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
            # A LimitRange or a policy may refuse large sizes, or small ones.
            whole = shared.limits - total([IDLE for _ in names[1:]])
            await resize(pod, {**dict.fromkeys(names, IDLE), name: whole}, shared, pod.pod, dry_run=True)
            if not runs:  # less memory would need a measurement of its use, which can take a minute
                more = Size(before.cpu, before.memory + 1)
                await resize(pod, {name: more}, shared, pod.pod)
                return await _shown(pod, name, more)
        except ResizeRefused as error:
            return str(error)
    return ""


async def _shown(pod: OwnPod, name: str, size: Size) -> str:
    """Wait until the status shows a container's size. Return why it does not, or an empty text."""
    try:
        async with asyncio.timeout(_TRIAL_SECONDS):
            await pod.until(lambda found: actual_limits(found, name) == limits_of(size) or None)
    except TimeoutError:
        return delay(pod.pod) or f"the pod's status does not show a resized container within {_TRIAL_SECONDS:.0f} s"
    return ""
