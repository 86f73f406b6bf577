"""Checks of a pod's GPUs. A pilot runs without GPUs, so that every problem is a warning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from k8spilot.gpu.discovery.claims import Claims
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.discovery.verdict import VISIBLE
from k8spilot.preflight.finding import Finding, good, warning
from k8spilot.settings import ENGINE, PILOT

Json = dict[str, Any]

CLAIM_KINDS: Final = {"resourceClaimTemplateName": "ResourceClaimTemplate", "resourceClaimName": "ResourceClaim"}
"""Kinds of the objects that a pod's claims name, by the field with the name."""
_NOTHING: Final = ("void", "none")
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"


def gpu_warnings(payload: Json, others: list[Json], claims: Claims) -> Iterator[str]:
    """Yield what is wrong, each as a phrase that says what to do.

    Args:
        payload: the payload container in the pod's specification.
        others: the other containers.
        claims: claims of the pod, as far as they are known.
    """
    name, request, variables = payload["name"], PodRequest.of(payload, claims), _variables(payload)
    visible = variables.get(VISIBLE)
    if visible is not None and (visible == "all" or (request.nvidia and visible not in _NOTHING)):
        yield (
            f"remove {VISIBLE} from {name}; otherwise the pod's own GPUs cannot be identified and jobs get none; the "
            "device plugin sets it where it is needed"
        )
    elif visible and visible not in _NOTHING:
        yield (
            f"remove {VISIBLE}={visible} from {name} and give it a limit such as nvidia.com/gpu: Kubernetes does not "
            "count GPUs without a limit, and gives them to other pods, too"
        )
    if request.nvidia and visible in _NOTHING:
        yield f"remove {VISIBLE}={visible} from {name}, which may hide the GPUs that the pod requests"
    needed = {"utility", "all"} & {variable.strip() for variable in variables.get(_CAPABILITIES, "all").split(",")}
    if not needed:
        yield f"add utility to {_CAPABILITIES} of {name}; otherwise the GPUs' properties are not visible"
    if request.others:
        yield f"remove {', '.join(request.others)} from {name}: k8spilot supports NVIDIA GPUs only, and jobs get none"
    for other in others:
        misplaced = PodRequest.of(other)
        if misplaced.nvidia or misplaced.others:
            devices = ", ".join([*misplaced.nvidia, *misplaced.others])
            yield f"move the limit {devices} from {other['name']} to {name}, in which the jobs run"
        elif request.nvidia and other["name"] in (ENGINE, PILOT) and _variables(other).get(VISIBLE) not in _NOTHING:
            yield f"set {VISIBLE}=void for {other['name']}, so that the node's runtime gives it no GPUs of other pods"


def shared_claims(payloads: list[Json]) -> Iterator[str]:
    """Yield a phrase for each claim that two payload containers have: a GPU can be in one HTCondor slot only."""
    holders: dict[str, list[str]] = {}
    requests: dict[str, set[str]] = {}
    for payload in payloads:
        for entry in (payload.get("resources") or {}).get("claims") or ():
            requests.setdefault(entry["name"], set()).add(entry.get("request") or "")
            holders.setdefault(entry["name"], []).append(payload["name"])
    for claim, names in holders.items():
        if len(names) > 1 and ("" in requests[claim] or len(requests[claim]) < len(names)):
            yield (
                f"give {' and '.join(names)} a claim each, or different requests of the claim {claim}, which they "
                "share; otherwise jobs of several slots use the same GPUs (`k8spilot slots` makes such a manifest)"
            )


def unused_claims(spec: Json, payloads: list[str]) -> Iterator[str]:
    """Yield a phrase for each claim of the pod that no payload container has."""
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    used = {
        entry["name"]
        for container in containers
        if container["name"] in payloads
        for entry in (container.get("resources") or {}).get("claims") or ()
    }
    for claim in spec.get("resourceClaims") or ():
        if claim["name"] not in used:
            yield (
                f"add the claim {claim['name']} to resources.claims of {payloads[-1]}, in which the jobs run, or "
                "remove it; otherwise no job can use its devices (a claim for a network interface of the pod needs no "
                "container)"
            )


def claim_objects(spec: Json) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each object that the claims of a pod's specification need."""
    for claim in spec.get("resourceClaims") or ():
        for field, kind in CLAIM_KINDS.items():
            if name := claim.get(field):
                yield kind, name


def controller_claims(spec: Json, kind: str) -> Iterator[str]:
    """Yield a phrase for each claim that all pods of a controller, an object of that kind, would share."""
    for claim in spec.get("resourceClaims") or ():
        if kind != "Pod" and claim.get("resourceClaimName"):
            yield (
                f"replace resourceClaimName of the claim {claim['name']} by resourceClaimTemplateName; otherwise jobs "
                f"of all pods of the {kind} use the devices of one ResourceClaim"
            )


def _variables(container: Json) -> dict[str, str]:
    return {variable["name"]: str(variable.get("value", "")) for variable in container.get("env") or ()}


def discovery_finding(exchange: Path) -> Finding | None:
    """Return the finding of the engine's GPU discovery; None before it, and where there are no GPUs."""
    gpus = GpuRecord.load(exchange)
    if gpus is None or not (gpus.usable or gpus.verdict.problem):
        return None
    return (warning if gpus.verdict.problem else good)("GPUs", gpus.summary)
