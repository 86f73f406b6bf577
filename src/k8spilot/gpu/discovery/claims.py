"""Devices of a pod's ResourceClaims (resource.k8s.io/v1, dynamic resource allocation)."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from k8spilot.kube.claims import read_claim
from k8spilot.kube.client import Api

logger = logging.getLogger(__name__)

Json = dict[str, Any]

NVIDIA: Final = "gpu.nvidia.com"
"""NVIDIA's DRA driver (kubernetes-sigs/dra-driver-nvidia-gpu)."""
COMPUTE_DOMAIN: Final = "compute-domain.nvidia.com"
"""Another driver of the same project. Its devices are channels between nodes, and no GPUs."""
NVIDIA_CLASSES: Final = frozenset({"gpu.nvidia.com", "mig.nvidia.com"})
"""DeviceClasses of GPUs that the project's Helm chart creates."""
_DRIVERS: Final = {
    **dict.fromkeys(NVIDIA_CLASSES, NVIDIA),
    "compute-domain-daemon.nvidia.com": COMPUTE_DOMAIN,
    "compute-domain-default-channel.nvidia.com": COMPUTE_DOMAIN,
}
"""Driver of each DeviceClass of that chart."""


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device of a claim."""

    request: str
    """Name of the request in the claim."""
    driver: str
    """DRA driver; of a device that is only requested, the DeviceClass if its driver is not known."""
    name: str
    """Name that is unique among the claim's devices: pool and device."""
    is_monitored: bool = False
    """Whether the claim has administrative access: the device may be allocated to another pod."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim."""

    devices: tuple[ClaimedDevice, ...] = ()
    users: tuple[str, ...] = ()
    """Other pods that may use the devices, too."""


_MOST_DEVICES: Final = 32
"""Devices of an allocated claim (k8s.io/api/resource/v1, AllocationResultsMaxSize)."""

Claims = Mapping[str, Claim]
"""Claims of a pod, by their names in `spec.resourceClaims`. A claim that cannot be read is missing."""
NO_CLAIMS: Final[Claims] = MappingProxyType({})


async def read_claims(api: Api, pod: Json) -> Claims:
    """Return the claims of a pod that the pilot may read and that have devices.

    Raises:
        ClusterError: a request failed.
    """
    claims = {}
    metadata = pod["metadata"]
    for name, object_name in object_names(pod).items():
        found = await read_claim(api, metadata["namespace"], object_name)
        if found is None:
            continue
        try:
            claim = allocated(found, metadata["uid"])
        except ValueError as error:
            logger.warning("The ResourceClaim %s cannot be read: %s.", object_name, error)
            continue
        if claim is not None:
            claims[name] = claim
    return claims


def object_names(pod: Json) -> dict[str, str]:
    """Return the names of the pod's ResourceClaim objects, by the claims' names in the pod.

    Kubernetes creates the object for a template, and names it in the pod's status.
    """
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    created = {one["name"]: one.get("resourceClaimName") for one in statuses}
    names = {}
    for claim in pod.get("spec", {}).get("resourceClaims") or ():
        if name := claim.get("resourceClaimName") or created.get(claim["name"]):
            names[claim["name"]] = str(name)
    return names


def allocated(claim: Json, pod_uid: str) -> Claim | None:
    """Return what a ResourceClaim object has; None if nothing is allocated to it.

    Raises:
        ValueError: the object has another form.
    """
    try:
        status = claim.get("status") or {}
        if (allocation := status.get("allocation")) is None:
            return None
        users = [str(one["name"]) for one in status.get("reservedFor") or () if one["uid"] != pod_uid]
        return Claim(tuple(_results((allocation.get("devices") or {}).get("results") or ())), tuple(users))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is not a ResourceClaim ({error!r})") from error


def _results(results: Sequence[Json]) -> Iterator[ClaimedDevice]:
    for result in results:
        request = str(result["request"]).partition("/")[0]  # request/subrequest
        name = f"{result['pool']}/{result['device']}"
        yield ClaimedDevice(request, str(result["driver"]), name, bool(result.get("adminAccess")))


def requested_claims(spec: Json, objects: Sequence[Json]) -> Claims:
    """Return what the claims of a pod's specification request.

    Args:
        spec: specification of the pod.
        objects: ResourceClaims and ResourceClaimTemplates of its namespace. Claims of others are not known.

    Raises:
        ValueError: an object has another form.
    """
    specs = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in objects}
    found = {}
    for claim in spec.get("resourceClaims") or ():
        template = specs.get(("ResourceClaimTemplate", claim.get("resourceClaimTemplateName")))
        known = specs.get(("ResourceClaim", claim.get("resourceClaimName"))) if template is None else _spec_in(template)
        if known is not None and (wanted := requested(known)) is not None:
            found[claim["name"]] = wanted
    return found


def _spec_in(template: Json) -> Json:
    spec = template.get("spec")
    if not isinstance(spec, dict):
        raise ValueError("the ResourceClaimTemplate has no spec.spec")  # noqa: TRY004 -- as for any other form
    return spec


def requested(spec: Json) -> Claim | None:
    """Return what the spec of a ResourceClaim or a ResourceClaimTemplate requests; None if the number is not fixed.

    Raises:
        ValueError: the object has another form.
    """
    devices: list[ClaimedDevice] = []
    try:
        for request in (spec.get("devices") or {}).get("requests") or ():
            exactly = request.get("exactly")
            if exactly is None or exactly.get("allocationMode", "ExactCount") != "ExactCount":
                return None  # alternatives, or all devices of a node
            device_class, name = str(exactly["deviceClassName"]), str(request["name"])
            driver = _DRIVERS.get(device_class, device_class)
            is_monitored = bool(exactly.get("adminAccess"))
            count = int(exactly.get("count") or 1)
            if count > _MOST_DEVICES:
                raise ValueError(f"its request {name} is for {count} devices, and a claim has at most {_MOST_DEVICES}")
            numbers = range(count)
            devices += [ClaimedDevice(name, driver, f"{name}/{number}", is_monitored) for number in numbers]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is not the spec of a ResourceClaim ({error!r})") from error
    return Claim(tuple(devices))


def shared_words(claims: Claims) -> Iterator[str]:
    """Yield a phrase for each claim that other pods use, too."""
    for name, claim in claims.items():
        if claim.users:
            yield (
                f"the claim {name} is also for the pod {', '.join(claim.users)}, so that jobs of several pods use its "
                "devices at the same time; use resourceClaimTemplateName, for a claim of each pod"
            )
