"""From what the probe has seen to the GPUs that jobs may have; no input or output here.

Device plugins have many ways to give a container its devices. What each of them shows, and what may be concluded from
it, is here. Where promise and sight do not agree, it is said, and what is not certain is not given to anybody.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from k8spilot.gpu.discovery.evidence import Device, Evidence
from k8spilot.gpu.discovery.pod_request import PodRequest

Strategy = Literal["none", "variable", "variable-cdi", "volume-mounts", "cdi", "all", "privileged"]
STRATEGIES: Final[dict[Strategy, str]] = {
    "none": "the container got no GPU",
    "variable": "the device plugin's list is in NVIDIA_VISIBLE_DEVICES (envvar)",
    "variable-cdi": "NVIDIA_VISIBLE_DEVICES names devices of CDI specifications",
    "volume-mounts": "the device plugin's list is mounted below /var/run/nvidia-container-devices",
    "cdi": "the container runtime made the device nodes and told the container nothing (CDI, DRA, plain device nodes)",
    "all": "NVIDIA_VISIBLE_DEVICES asks for every GPU of the node",
    "privileged": "the container may use every device of the node",
}

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_FOLDER: Final = "/var/run/nvidia-container-devices"
_OLD_PART: Final = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)")
_NODE: Final = re.compile(r"/dev/(?:nvidia\d+|dxg|nvidia-caps/nvidia-cap\d+)")
_INDEX: Final = re.compile(r"\d+(:\d+)?")
"""Of a GPU, or of a GPU and a part of it."""
_AMD: Final = "/dev/kfd"


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """What is to be made of the evidence."""

    strategy: Strategy = "none"
    reasons: tuple[str, ...] = ()
    """On what evidence, a phrase each."""
    expected: tuple[str, ...] = ()
    """Ids of the devices that the container was given, where it was told."""
    observed: tuple[Device, ...] = ()
    """The devices that can be seen in it."""
    usable: tuple[Device, ...] = ()
    """Those that jobs may have."""
    problem: str = ""
    """What is wrong, as a sentence without its stop; nothing if all is well."""


def judge(seen: Evidence, promise: PodRequest) -> GpuVerdict:
    """Say which devices the container has, how it got them, and what is wrong."""
    observed, blocked = _observed(seen)
    way = _way(seen, observed)
    found = GpuVerdict(way.strategy, (*_reasons(seen, promise), *blocked), way.ids, observed)
    usable, problem = _usable(found, seen, promise, way)
    if not problem and promise.others:
        problem = (
            f"the pod asks for {', '.join(promise.others)}, and k8spilot knows GPUs of NVIDIA only; jobs get none "
            "(docs/explanation/gpus.md says what is missing)"
        )
    if blocked and not problem:
        problem = f"{blocked[0]}; jobs do not get it"
    return replace(found, usable=usable, problem=problem)


def _observed(seen: Evidence) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices that can be used as far as can be seen, and why others cannot."""
    devices = seen.files if seen.driver.error else seen.driver.devices
    wholes = {one.uuid: one for one in devices if not one.parent}
    windows = any(node.path == "/dev/dxg" for node in seen.nodes)  # one node for all, in the Linux of Windows
    found, blocked = [], []
    for one in devices:
        minor = wholes.get(one.parent, one).minor
        if one.divided:
            continue
        if minor is None or windows or seen.allows(minor):
            found.append(one)
        elif not seen.driver.error:  # the driver's files tell of the whole node's
            blocked.append(f"the driver lists {one.uuid}, and the container may not use /dev/nvidia{minor}")
    return tuple(found), tuple(blocked)


class _Way(NamedTuple):
    """How devices came to the container."""

    strategy: Strategy
    ids: tuple[str, ...] = ()
    listed: int | None = None
    """How many devices a list of indices means, which says how many they are, and not which."""
    entries: int = 0
    """The length of a list, in which time slicing and MPS may have a device more than once."""


def _way(seen: Evidence, observed: tuple[Device, ...]) -> _Way:
    value = seen.variables.get(VISIBLE, "").strip()
    if seen.mounts:
        return _Way("volume-mounts", _unique(_mounted(one) for one in seen.mounts), entries=len(seen.mounts))
    if value not in ("", "void", "none") and value.rstrip("/") != _FOLDER:
        return _listed(value)
    if not observed and not _nodes(seen):
        return _Way("none")
    return _Way("privileged" if seen.unlimited else "cdi")


def _listed(value: str) -> _Way:
    """The variable, if it says anything: ids, indices, or qualified names (vendor/class=name) of them."""
    entries = [one.strip() for one in value.split(",") if one.strip()]
    names = [one.rpartition("=")[2] for one in entries]
    if "all" in names:
        return _Way("all")
    strategy: Strategy = "variable-cdi" if any("=" in one for one in entries) else "variable"
    ids = _unique(names)
    if all(_INDEX.fullmatch(one) for one in ids):
        return _Way(strategy, listed=len(ids), entries=len(names))
    return _Way(strategy, ids, entries=len(names))


def _mounted(path: str) -> str:
    """The id that a path below the folder stands for; one of CDI has vendor and class before it."""
    parts = path.split("/")
    return parts[-1] if parts[0] == "cdi" and len(parts) >= 4 else path


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    """Without what time slicing and MPS put behind an id, each once."""
    return tuple(dict.fromkeys(one.partition("::")[0] for one in ids))


def _reasons(seen: Evidence, promise: PodRequest) -> Iterator[str]:
    yield f"the pod asks for {promise.words}" if promise.words else "the pod asks for no GPU"
    value = seen.variables.get(VISIBLE)
    yield f"{VISIBLE} is {value!r}" if value is not None else f"{VISIBLE} is not set"
    if seen.mounts:
        yield f"{_FOLDER} has {', '.join(seen.mounts)}"
    nodes = [*_nodes(seen), *(node.path for node in seen.nodes if node.path == _AMD)]
    yield f"device nodes: {', '.join(nodes)}" if nodes else "no device node of a GPU"
    if seen.unlimited:
        yield "the container may use every device of the node"
    elif seen.cgroup is not None and nodes:
        allowed = [node.path for node in seen.nodes if node.path in nodes and seen.covers(node)]
        yield f"its device cgroup allows {', '.join(allowed) or 'none of them'}"
    if seen.driver.error:
        yield seen.driver.error
        if seen.files:
            yield f"the driver's files tell of {len(seen.files)} GPUs of the node"
    else:
        names = [one.uuid for one in seen.driver.devices if not one.divided]
        yield f"NVML (driver {seen.driver.version}) lists {', '.join(names) or 'no device'}"


def _nodes(seen: Evidence) -> list[str]:
    """Device nodes of single GPUs."""
    return [node.path for node in seen.nodes if _NODE.fullmatch(node.path)]


def _usable(found: GpuVerdict, seen: Evidence, promise: PodRequest, way: _Way) -> tuple[tuple[Device, ...], str]:
    """What jobs may have, and what is wrong."""
    if found.strategy == "none":
        expects = promise.count or seen.variables.get(VISIBLE, "").startswith("/")
        return (), _nothing(seen, promise) if expects else ""
    if found.strategy in ("all", "privileged"):
        mend = {
            "all": f"Take {VISIBLE} out of the payload container's specification, and let the device plugin set it",
            "privileged": "Take the privileges from the payload container, or have the device plugin name its devices",
        }[found.strategy]
        return (), (
            f"{STRATEGIES[found.strategy]}, so that nobody can tell which GPUs are this pod's; jobs get none. {mend}"
        )
    if found.expected and not found.observed and not _nodes(seen):
        return (), _nothing(seen, promise)
    named = len(found.expected) or way.listed or 0
    if promise.count and named > promise.count:
        return (), (
            f"{named} GPUs are named, and {promise.count} were promised ({promise.words}); jobs get "
            f"none. Take {VISIBLE} out of the payload container's specification, and let the device plugin set it"
        )
    if found.expected or found.observed:
        return _named(found, promise, way) if found.expected else _counted(found.observed, promise, way)
    return (), _unseen(seen)


def _counted(observed: tuple[Device, ...], promise: PodRequest, way: _Way) -> tuple[tuple[Device, ...], str]:
    """As `_usable`, where nothing but the number of devices is known."""
    problem, usable = "", observed
    wanted = promise.count if way.listed is None else way.listed
    promised = promise.words if wanted == promise.count else VISIBLE
    if not promise.count and not promise.uncounted:
        usable = ()
        asked = "the pod does not ask for"
        if promise.unknown:
            asked = f"nothing is known to bring of what the pod asks for ({promise.words})"
        problem = (
            f"the payload container sees {_count(observed)} that {asked}; jobs get none. Give it a limit such as "
            "nvidia.com/gpu, so that the GPUs are this pod's alone"
        )
    elif wanted and len(observed) > wanted:
        usable = ()
        problem = (
            f"the payload container sees {_count(observed)}, and {wanted} were promised ({promised}); nobody can tell "
            "which are this pod's, so jobs get none"
        )
    elif len(observed) < wanted and not promise.shared:
        problem = (
            f"the payload container sees {_count(observed)} of {wanted} that were promised ({promised}); jobs get what "
            "can be seen"
        )
    elif _too_few(promise, way):
        problem = f"{VISIBLE} has {_too_few(promise, way)}; jobs get {_count(usable)}"
    return usable, problem


def _too_few(promise: PodRequest, way: _Way) -> str:
    """What is wrong with a list that is shorter than the limit; nothing if it is not, or may be."""
    if not way.entries or way.entries >= promise.count or promise.shared:
        return ""
    return f"{way.entries} of {promise.count} GPUs that were promised ({promise.words})"


def _named(found: GpuVerdict, promise: PodRequest, way: _Way) -> tuple[tuple[Device, ...], str]:
    """As `_usable`, where the devices' ids are known."""
    usable = tuple(one for one in found.observed if any(_is(one, name) for name in found.expected))
    missing = [name for name in found.expected if not any(_is(one, name) for one in found.observed)]
    others = [one.uuid for one in found.observed if one not in usable]
    faults = []
    if _too_few(promise, way):
        faults.append(f"these are {_too_few(promise, way)}")
    if missing:
        faults.append(f"{', '.join(missing)} cannot be seen in the payload container")
    if others:
        faults.append(f"{', '.join(others)} can be seen there and was not promised")
    if not faults:
        return usable, ""
    given = f"jobs get {_count(usable)}" if usable else "jobs get none"
    return usable, f"named are {', '.join(found.expected)}: {' and '.join(faults)}; {given}"


def _is(device: Device, name: str) -> bool:
    """Whether `name` means a device: by its uuid, or, for a part, by the whole's and its instances."""
    if old := _OLD_PART.fullmatch(name):
        return (device.parent.lower(), device.instance) == (old[1].lower(), (int(old[2]), int(old[3])))
    return name.lower() in (device.uuid.lower(), device.uuid.lower().removeprefix("gpu-"))


def _nothing(seen: Evidence, promise: PodRequest) -> str:
    asked = f"the pod asks for {promise.words}" if promise.words else "GPUs were promised"
    return (
        f"{asked}, and the payload container sees no GPU: no device node, and {seen.driver.error or 'none in NVML'}; "
        "jobs get none. The node's container runtime may need `runtimeClassName: nvidia` in the pod"
    )


def _unseen(seen: Evidence) -> str:
    why = seen.driver.error or "NVML lists none"
    return (
        f"the payload container has device nodes of GPUs that cannot be named, since {why}; jobs get none. "
        "NVIDIA_DRIVER_CAPABILITIES must have utility"
    )


def _count(devices: tuple[Device, ...]) -> str:
    return f"{len(devices)} GPU{'' if len(devices) == 1 else 's'}"
