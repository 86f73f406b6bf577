"""Checks of a pod's GPUs. A pilot runs without GPUs, so that every problem is a warning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.discovery.verdict import VISIBLE
from k8spilot.preflight.finding import Finding, good, warning
from k8spilot.settings import ENGINE, PILOT

Json = dict[str, Any]

_NOTHING: Final = ("void", "none")
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"


def gpu_warnings(payload: Json, others: list[Json]) -> Iterator[str]:
    """Yield what is wrong, each as a phrase that says what to do.

    Args:
        payload: the payload container in the pod's specification.
        others: the other containers.
    """
    name, promise, variables = payload["name"], PodRequest.of(payload), _variables(payload)
    visible = variables.get(VISIBLE)
    if visible is not None and (visible == "all" or (promise.nvidia and visible not in _NOTHING)):
        yield (
            f"remove {VISIBLE} from {name}; otherwise the pod's own GPUs cannot be identified and jobs get none; the "
            "device plugin sets it where it is needed"
        )
    elif visible and visible not in _NOTHING:
        yield (
            f"remove {VISIBLE}={visible} from {name} and give it a limit such as nvidia.com/gpu: Kubernetes does not "
            "count GPUs without a limit, and gives them to other pods, too"
        )
    if promise.nvidia and visible in _NOTHING:
        yield f"remove {VISIBLE}={visible} from {name}, which may hide the GPUs that the pod requests"
    needed = {"utility", "all"} & {variable.strip() for variable in variables.get(_CAPABILITIES, "all").split(",")}
    if not needed:
        yield f"add utility to {_CAPABILITIES} of {name}; otherwise the GPUs' properties are not visible"
    if promise.others:
        yield f"remove {', '.join(promise.others)} from {name}: k8spilot supports NVIDIA GPUs only, and jobs get none"
    for other in others:
        request = PodRequest.of(other)
        if request.nvidia or request.others:
            devices = ", ".join([*request.nvidia, *request.others])
            yield f"move the limit {devices} from {other['name']} to {name}, in which the jobs run"
        elif promise.nvidia and other["name"] in (ENGINE, PILOT) and _variables(other).get(VISIBLE) not in _NOTHING:
            yield f"set {VISIBLE}=void for {other['name']}, so that the node's runtime gives it no GPUs of other pods"


def _variables(container: Json) -> dict[str, str]:
    return {variable["name"]: str(variable.get("value", "")) for variable in container.get("env") or ()}


def found_finding(exchange: Path) -> Finding | None:
    """Return the finding of the engine's GPU discovery; None before it, and where there are no GPUs."""
    gpus = GpuRecord.load(exchange)
    if gpus is None or not (gpus.usable or gpus.verdict.problem):
        return None
    return (warning if gpus.verdict.problem else good)("GPUs", gpus.words)
