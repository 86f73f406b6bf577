"""Change of the resources of the own pod's containers in place (subresource pods/resize; Kubernetes 1.33, GA in 1.35).

The pod itself has resources (spec.resources, on by default since 1.34). Such a pod can be resized since 1.36 (feature
gate InPlacePodLevelResourcesVerticalScaling). The API server refuses a change after which its containers would request
more than the pod does (validation.go, validatePodResourceConsistency). So a container can grow only by what another one
gives up, or by what no container has.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError, PilotError
from k8spilot.kube.client import ApiRefusal
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.quantity import quantity
from k8spilot.model.slot_sizes import IDLE, NOTHING, Size, total

Json = dict[str, Any]

_MIB: Final = 2**20
_LEAST_LIMIT: Final = 1000
"""Smallest CPU limit. With less, the runtime would need seconds to start a container, in which the kubelet does nothing
else for the pod. The limit is no promise: all containers together request no more than the pod."""
_REFUSALS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Statuses of a change that is refused for its content or for want of a right, or that the server does not know."""
_REASONS: Final = ("PodResizePending", "PodResizeInProgress")
"""Conditions of a pod whose resize the kubelet has not done (k8s.io/api/core/v1/types.go)."""


class ResizeRefused(PilotError):
    """Raised when containers of the pod cannot be resized here: no right, an old server, a policy."""


@dataclass(frozen=True, slots=True)
class Room:
    """Resources of all payload containers together."""

    limits: Size
    requests: Size

    def requested(self, size: Size) -> Size:
        """Return the requests of a container with these limits: the same part as of the whole room."""
        return Size(
            _scaled(size.cpu, self.requests.cpu, self.limits.cpu),
            _scaled(size.memory, self.requests.memory, self.limits.memory),
        )


def _scaled(value: int, numerator: int, denominator: int) -> int:
    """Return the scaled value, rounded down, so that the sum of scaled values is in the scaled sum."""
    return value * min(numerator, denominator) // denominator


def room(pod: Json, names: Collection[str]) -> Room | None:
    """Return what the containers `names` may have together; None if the pod has no resources of its own for them."""
    spec = pod.get("spec") or {}
    whole = spec.get("resources") or {}
    others = [one for one in _lasting(spec) if one["name"] not in names]
    left = {}
    for kind in ("limits", "requests"):
        size = _size(whole.get(kind) or {})
        taken = total([_size((one.get("resources") or {}).get(kind) or {}) or NOTHING for one in others])
        if size is None or not NOTHING.fits_in(size - taken) or 0 in ((size - taken).cpu, (size - taken).memory):
            return None
        left[kind] = size - taken
    return Room(left["limits"], left["requests"])


def _lasting(spec: Json) -> Iterable[Json]:
    """Return the containers that run as long as the pod: the regular ones and the native sidecars."""
    return [
        *(one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"),
        *(spec.get("containers") or ()),
    ]


def wanted_size(pod: Json, name: str, room: Room) -> Size | None:
    """Return the size of a container in the pod's specification; None if it has no limits."""
    found: Json = next((one for one in _lasting(pod.get("spec") or {}) if one["name"] == name), {})
    resources = found.get("resources") or {}
    limits, requests = _size(resources.get("limits") or {}), _size(resources.get("requests") or {})
    if limits is None or requests is None:
        return None
    if requests == room.requested(IDLE) and limits.memory == IDLE.memory:
        return IDLE  # which scaling would not return exactly
    if requests == room.requested(limits):
        return limits  # nor this one: requests are rounded
    return Size(-(-requests.cpu * room.limits.cpu // room.requests.cpu), limits.memory)


def actual_limits(pod: Json, name: str) -> Size | None:
    """Return the limits that the kubelet has given to a running container; None if the status does not show them."""
    status = pod.get("status") or {}
    parts = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found: Json = next((one for one in parts if one["name"] == name and "running" in (one.get("state") or {})), {})
    return _size((found.get("resources") or {}).get("limits") or {})


def generation(pod: Json) -> int:
    """Return the generation of the pod's specification: each change of it is one more; 0 if it is not known."""
    return int((pod.get("metadata") or {}).get("generation") or 0)


def has_seen(pod: Json, generation: int) -> bool:
    """Return whether the pod's status is that of a kubelet which has seen this generation of the specification.

    Without it, a size that the kubelet is about to change looks like one that it has just given: a size is taken away
    and given back before the kubelet has done the first of these changes. Kubelets tell since Kubernetes 1.34 (feature
    PodObservedGenerationTracking); the status of others counts as it is.
    """
    observed = (pod.get("status") or {}).get("observedGeneration")
    return observed is None or int(observed) >= generation


def limits_of(size: Size) -> Size:
    """Return the limits of a container with this size."""
    return Size(max(size.cpu, _LEAST_LIMIT), size.memory)


def _size(values: Mapping[str, Any]) -> Size | None:
    if "cpu" not in values or "memory" not in values:
        return None
    return Size(round(quantity(values["cpu"]) * 1000), int(quantity(values["memory"]) // _MIB))


def delay(pod: Json) -> str:
    """Return the kubelet's reason for not having resized the pod yet, such as `Deferred: ...`; empty without one."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _REASONS and condition.get("status") == "True" and condition.get("reason"):
            return f"{condition['reason']}: {condition.get('message', '')}".rstrip(": ")
    return ""


async def resize(pod: OwnPod, sizes: Mapping[str, Size], room: Room, seen: Json, *, dry_run: bool = False) -> Json:
    """Request other limits of containers, in one change. Return the pod as the API server has accepted it.

    Args:
        pod: the own pod.
        sizes: new sizes by the containers' names.
        room: what all payload containers may have.
        seen: the pod as it was last seen. A late change, which finds other values, must not undo a later one.
        dry_run: whether the API server only checks it.

    Raises:
        ResizeRefused: the API server refuses it: no right, a policy, too large, or other values by now.
        ClusterError: the request failed this time.
    """
    changes: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}]
    for number, container in enumerate(seen["spec"].get("initContainers", [])):
        if (size := sizes.get(container["name"])) is not None:
            place = f"/spec/initContainers/{number}"
            before = container.get("resources", {})
            changes += [
                {"op": "test", "path": f"{place}/name", "value": container["name"]},
                {"op": "test", "path": f"{place}/resources/limits", "value": before.get("limits")},
                {"op": "test", "path": f"{place}/resources/requests", "value": before.get("requests")},
                *_operations(f"{place}/resources/requests", room.requested(size)),
                *_operations(f"{place}/resources/limits", limits_of(size)),
            ]
    path, query = f"{pod.path}/{pod.name}/resize", {"dryRun": "All"} if dry_run else None
    try:
        return await pod.api.read("patch", path, query=query, body=changes)
    except ApiRefusal as error:
        if error.status in _REFUSALS:
            raise ResizeRefused(f"the Kubernetes API does not resize the payload containers: {error}") from error
        raise ClusterError(f"the payload containers cannot be resized now: {error}") from error


def _operations(place: str, size: Size) -> list[Json]:
    return [
        {"op": "replace", "path": f"{place}/cpu", "value": f"{size.cpu}m"},
        {"op": "replace", "path": f"{place}/memory", "value": f"{size.memory}Mi"},
    ]
