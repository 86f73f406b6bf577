"""GPUs: what of a pod's shape keeps jobs from them. A pilot runs without, so all of it is a warning."""

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
    """List what is wrong, each as a phrase that says what to do.

    Args:
        payload: the payload container in the pod's specification.
        others: the other containers.
    """
    name, promise, variables = payload["name"], PodRequest.of(payload), _variables(payload)
    visible = variables.get(VISIBLE)
    if visible is not None and (visible == "all" or (promise.nvidia and visible not in _NOTHING)):
        yield (
            f"take {VISIBLE} out of {name}, or nobody can tell which GPUs are this pod's and jobs get none; the device "
            "plugin sets it where it is needed"
        )
    elif visible and visible not in _NOTHING:
        yield (
            f"take {VISIBLE}={visible} out of {name} and give it a limit such as nvidia.com/gpu: Kubernetes does not "
            "know of GPUs that are named without one, and gives them to other pods, too"
        )
    if promise.nvidia and visible in _NOTHING:
        yield f"take {VISIBLE}={visible} out of {name}, which may hide the GPUs that the pod asks for"
    needed = {"utility", "all"} & {one.strip() for one in variables.get(_CAPABILITIES, "all").split(",")}
    if not needed:
        yield f"add utility to {_CAPABILITIES} of {name}, or the GPUs' properties cannot be seen"
    if promise.others:
        yield f"take {', '.join(promise.others)} out of {name}: k8spilot knows GPUs of NVIDIA only, and jobs get none"
    for other in others:
        asked = PodRequest.of(other)
        if asked.nvidia or asked.others:
            devices = ", ".join([*asked.nvidia, *asked.others])
            yield f"move the limit {devices} from {other['name']} to {name}, in which the jobs run"
        elif promise.nvidia and other["name"] in (ENGINE, PILOT) and _variables(other).get(VISIBLE) not in _NOTHING:
            yield f"set {VISIBLE}=void for {other['name']}, so that no node's runtime gives it the GPUs of other pods"


def _variables(container: Json) -> dict[str, str]:
    return {one["name"]: str(one.get("value", "")) for one in container.get("env") or ()}


def found_finding(exchange: Path) -> Finding | None:
    """What the engine has found, if it has looked yet and there is something to say."""
    gpus = GpuRecord.load(exchange)
    if gpus is None or not (gpus.usable or gpus.verdict.problem):
        return None
    return (warning if gpus.verdict.problem else good)("GPUs", gpus.words)
