"""The verdict: which GPUs jobs may use, from the probe's evidence and the pod's request; no I/O.

Device plugins give a container its devices in many ways. This module knows the traces of each, and the conclusions. If
request and evidence disagree, the verdict has a problem, and no job gets a doubtful device.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from k8spilot.gpu.discovery.evidence import Device, Evidence
from k8spilot.gpu.discovery.pod_request import PodRequest

Strategy = Literal["none", "variable", "variable-cdi", "volume-mounts", "cdi", "all", "privileged"]
STRATEGIES: Final[dict[Strategy, str]] = {
    "none": "the container has no GPU",
    "variable": "the device plugin's list is in NVIDIA_VISIBLE_DEVICES (envvar)",
    "variable-cdi": "NVIDIA_VISIBLE_DEVICES names devices of CDI specifications",
    "volume-mounts": "the device plugin's list is mounted below /var/run/nvidia-container-devices",
    "cdi": "the container runtime created the device nodes without variables or mounts (CDI, DRA, plain device nodes)",
    "all": "NVIDIA_VISIBLE_DEVICES asks for every GPU of the node",
    "privileged": "the container may use every device of the node",
}

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_FOLDER: Final = "/var/run/nvidia-container-devices"
_OLD_PART: Final = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)")
_NODE: Final = re.compile(r"/dev/(?:nvidia\d+|dxg|nvidia-caps/nvidia-cap\d+)")
_INDEX: Final = re.compile(r"\d+(:\d+)?")
"""Index of a GPU, or of a GPU and a MIG device."""
_AMD: Final = "/dev/kfd"


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """Conclusions from the evidence."""

    strategy: Strategy = "none"
    reasons: tuple[str, ...] = ()
    """Evidence of the verdict, a phrase each."""
    expected: tuple[str, ...] = ()
    """Ids of the devices that the container was given, if variables or mounts name them."""
    observed: tuple[Device, ...] = ()
    """Devices that are visible in the container."""
    usable: tuple[Device, ...] = ()
    """Devices that jobs may use."""
    problem: str = ""
    """Problem as a sentence without its full stop; empty if there is none."""


def judge(evidence: Evidence, request: PodRequest) -> GpuVerdict:
    """Return which devices the container has, how it got them, and what is wrong."""
    observed, blocked = _observed(evidence)
    assignment = _assignment(evidence, observed)
    verdict = GpuVerdict(assignment.strategy, (*_reasons(evidence, request), *blocked), assignment.ids, observed)
    usable, problem = _usable(verdict, evidence, request, assignment)
    if not problem and request.others:
        problem = (
            f"the pod requests {', '.join(request.others)}, and k8spilot supports NVIDIA GPUs only; jobs get none "
            "(docs/explanation/gpus.md says what is missing)"
        )
    if blocked and not problem:
        problem = f"{blocked[0]}; jobs do not get it"
    return replace(verdict, usable=usable, problem=problem)


def _observed(evidence: Evidence) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return the devices that can be used, as far as the evidence shows, and why others cannot."""
    devices = evidence.files if evidence.driver.error else evidence.driver.devices
    wholes = {device.uuid: device for device in devices if not device.parent}
    windows = any(node.path == "/dev/dxg" for node in evidence.nodes)  # WSL: one node for all GPUs
    found, blocked = [], []
    for device in devices:
        minor = wholes.get(device.parent, device).minor
        if device.divided:
            continue
        if minor is None or windows or evidence.allows(minor):
            found.append(device)
        elif not evidence.driver.error:  # the driver's files list all GPUs of the node
            blocked.append(f"the driver lists {device.uuid}, but the container may not use /dev/nvidia{minor}")
    return tuple(found), tuple(blocked)


class _Assignment(NamedTuple):
    """The way in which devices were given to the container."""

    strategy: Strategy
    ids: tuple[str, ...] = ()
    listed: int | None = None
    """Length of a list of indices, which shows how many devices there are, but not which."""
    entries: int = 0
    """Length of a list. With time slicing and MPS it may have a device more than once."""


def _assignment(evidence: Evidence, observed: tuple[Device, ...]) -> _Assignment:
    value = evidence.variables.get(VISIBLE, "").strip()
    if evidence.mounts:
        return _Assignment(
            "volume-mounts", _unique(_mounted(path) for path in evidence.mounts), entries=len(evidence.mounts)
        )
    if value not in ("", "void", "none") and value.rstrip("/") != _FOLDER:
        return _listed(value)
    if not observed and not _nodes(evidence):
        return _Assignment("none")
    return _Assignment("privileged" if evidence.unlimited else "cdi")


def _listed(value: str) -> _Assignment:
    """Interpret the variable: ids, indices, or qualified names (vendor/class=name)."""
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    names = [entry.rpartition("=")[2] for entry in entries]
    if "all" in names:
        return _Assignment("all")
    strategy: Strategy = "variable-cdi" if any("=" in entry for entry in entries) else "variable"
    ids = _unique(names)
    if all(_INDEX.fullmatch(identifier) for identifier in ids):
        return _Assignment(strategy, listed=len(ids), entries=len(names))
    return _Assignment(strategy, ids, entries=len(names))


def _mounted(path: str) -> str:
    """Return the id for a path below the folder. A CDI path has vendor and class before the id."""
    parts = path.split("/")
    return parts[-1] if parts[0] == "cdi" and len(parts) >= 4 else path


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids without duplicates and without the suffixes of time slicing and MPS."""
    return tuple(dict.fromkeys(identifier.partition("::")[0] for identifier in ids))


def _reasons(evidence: Evidence, request: PodRequest) -> Iterator[str]:
    yield f"the pod requests {request.summary}" if request.summary else "the pod requests no GPU"
    value = evidence.variables.get(VISIBLE)
    yield f"{VISIBLE} is {value!r}" if value is not None else f"{VISIBLE} is not set"
    if evidence.mounts:
        yield f"{_FOLDER} has {', '.join(evidence.mounts)}"
    nodes = [*_nodes(evidence), *(node.path for node in evidence.nodes if node.path == _AMD)]
    yield f"device nodes: {', '.join(nodes)}" if nodes else "no device node of a GPU"
    if evidence.unlimited:
        yield "the container may use every device of the node"
    elif evidence.cgroup is not None and nodes:
        allowed = [node.path for node in evidence.nodes if node.path in nodes and evidence.covers(node)]
        yield f"its device cgroup allows {', '.join(allowed) or 'none of them'}"
    if evidence.driver.error:
        yield evidence.driver.error
        if evidence.files:
            yield f"the driver's files list {len(evidence.files)} GPUs of the node"
    else:
        names = [device.uuid for device in evidence.driver.devices if not device.divided]
        yield f"NVML (driver {evidence.driver.version}) lists {', '.join(names) or 'no device'}"


def _nodes(evidence: Evidence) -> list[str]:
    """Return the paths of device nodes of single GPUs."""
    return [node.path for node in evidence.nodes if _NODE.fullmatch(node.path)]


def _usable(
    verdict: GpuVerdict, evidence: Evidence, request: PodRequest, assignment: _Assignment
) -> tuple[tuple[Device, ...], str]:
    """Return the devices that jobs may use, and the problem."""
    if verdict.strategy == "none":
        expects = request.count or evidence.variables.get(VISIBLE, "").startswith("/")
        return (), _nothing(evidence, request) if expects else ""
    if verdict.strategy in ("all", "privileged"):
        correction = {
            "all": f"Remove {VISIBLE} from the payload container's specification, and let the device plugin set it",
            "privileged": "Make the payload container unprivileged, or let the device plugin name its devices",
        }[verdict.strategy]
        return (), (
            f"{STRATEGIES[verdict.strategy]}, so that the pod's own GPUs cannot be identified; jobs get none. "
            f"{correction}"
        )
    if verdict.expected and not verdict.observed and not _nodes(evidence):
        return (), _nothing(evidence, request)
    named = len(verdict.expected) or assignment.listed or 0
    if request.count and named > request.count:
        return (), (
            f"{named} GPUs are named, but the pod requests {request.count} ({request.summary}); jobs get "
            f"none. Remove {VISIBLE} from the payload container's specification, and let the device plugin set it"
        )
    if verdict.expected or verdict.observed:
        return (
            _named(verdict, request, assignment)
            if verdict.expected
            else _counted(verdict.observed, request, assignment)
        )
    return (), _unseen(evidence)


def _counted(
    observed: tuple[Device, ...], request: PodRequest, assignment: _Assignment
) -> tuple[tuple[Device, ...], str]:
    """Return the same as `_usable`, where only the number of devices is known."""
    problem, usable = "", observed
    wanted = request.count if assignment.listed is None else assignment.listed
    requested = request.summary if wanted == request.count else VISIBLE
    if not request.count and not request.uncounted:
        usable = ()
        reason = "the pod does not request"
        if request.unknown:
            reason = f"the pod's requests ({request.summary}) do not explain"
        problem = (
            f"the payload container sees {_count(observed)} that {reason}; jobs get none. Give it a limit such as "
            "nvidia.com/gpu, so that no other pod gets these GPUs"
        )
    elif wanted and len(observed) > wanted:
        usable = ()
        problem = (
            f"the payload container sees {_count(observed)}, but {wanted} were requested ({requested}); the pod's own "
            "GPUs cannot be identified, so jobs get none"
        )
    elif len(observed) < wanted and not request.shared:
        problem = (
            f"the payload container sees {_count(observed)} of {wanted} that were requested ({requested}); jobs get "
            "the visible ones"
        )
    elif _too_few(request, assignment):
        problem = f"{VISIBLE} has {_too_few(request, assignment)}; jobs get {_count(usable)}"
    return usable, problem


def _too_few(request: PodRequest, assignment: _Assignment) -> str:
    """Return the problem of a list that is shorter than the limit; empty if there is none."""
    if not assignment.entries or assignment.entries >= request.count or request.shared:
        return ""
    return f"{assignment.entries} of {request.count} GPUs that were requested ({request.summary})"


def _named(verdict: GpuVerdict, request: PodRequest, assignment: _Assignment) -> tuple[tuple[Device, ...], str]:
    """Return the same as `_usable`, where the devices' ids are known."""
    usable = tuple(device for device in verdict.observed if any(_is(device, name) for name in verdict.expected))
    missing = [name for name in verdict.expected if not any(_is(device, name) for device in verdict.observed)]
    others = [device.uuid for device in verdict.observed if device not in usable]
    faults = []
    if _too_few(request, assignment):
        faults.append(f"these are {_too_few(request, assignment)}")
    if missing:
        faults.append(f"the payload container does not see {', '.join(missing)}")
    if others:
        faults.append(f"the payload container sees {', '.join(others)} without a request")
    if not faults:
        return usable, ""
    given = f"jobs get {_count(usable)}" if usable else "jobs get none"
    return usable, f"the device plugin named {', '.join(verdict.expected)}: {' and '.join(faults)}; {given}"


def _is(device: Device, name: str) -> bool:
    """Return whether `name` means a device: its UUID, or the whole GPU's UUID and the instances of a MIG device."""
    if old := _OLD_PART.fullmatch(name):
        return (device.parent.lower(), device.instance) == (old[1].lower(), (int(old[2]), int(old[3])))
    return name.lower() in (device.uuid.lower(), device.uuid.lower().removeprefix("gpu-"))


def _nothing(evidence: Evidence, request: PodRequest) -> str:
    requested = f"the pod requests {request.summary}" if request.summary else "GPUs were requested"
    correction = "The node's container runtime may need `runtimeClassName: nvidia` in the pod"
    if request.is_claimed:
        correction = "Enable CDI in the node's container runtime, by which the DRA driver gives devices"
    return (
        f"{requested}, but the payload container sees no GPU: no device node, and "
        f"{evidence.driver.error or 'none in NVML'}; jobs get none. {correction}"
    )


def _unseen(evidence: Evidence) -> str:
    why = evidence.driver.error or "NVML lists none"
    return (
        f"the payload container has device nodes of GPUs that cannot be identified, because {why}; jobs get none. "
        "Add utility to NVIDIA_DRIVER_CAPABILITIES"
    )


def _count(devices: tuple[Device, ...]) -> str:
    return f"{len(devices)} GPU{'' if len(devices) == 1 else 's'}"
