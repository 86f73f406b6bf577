"""What the probe has seen in the payload container, as data; no input or output here.

It travels as JSON, from the probe to the engine, and lies in the pod for engines that come later.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a part of one that is a device of its own (MIG)."""

    uuid: str
    """Its name everywhere in k8spilot, as NVML has it: GPU-8f9c2d75-..., MIG-..."""
    name: str = ""
    index: int | None = None
    """NVML's; in a container counted from 0."""
    minor: int | None = None
    """Of its node /dev/nvidia<minor>."""
    pci: str = ""
    """domain:bus:device.function."""
    memory_mb: int | None = None
    """All of its memory, in MiB."""
    capability: str = ""
    """CUDA's compute capability, as 9.0."""
    ecc: bool | None = None
    clock_mhz: int | None = None
    """The highest of its multiprocessors."""
    cores: int | None = None
    """CUDA cores."""
    units: int | None = None
    """Multiprocessors, where they are told."""
    divided: bool = False
    """It is in MIG mode: its parts are devices, it is none itself."""
    parent: str = ""
    """Of a part, the uuid of the whole."""
    instance: tuple[int, int] | None = None
    """Of a part, the numbers of its GPU instance and compute instance."""


@dataclass(frozen=True, slots=True)
class Node:
    """A device node."""

    path: str
    kind: str
    """c or b."""
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Driver:
    """What the driver says when it is asked through its library."""

    error: str = ""
    """Why it could not be asked."""
    version: str = ""
    """As 580.159.04."""
    cuda: int | None = None
    """The newest CUDA that it runs, as 13000."""
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was seen."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of the environment that have to do with GPUs."""
    mounts: tuple[str, ...] = ()
    """What lies in the folder of mounts that stand for devices, by path below it."""
    nodes: tuple[Node, ...] = ()
    """All of /dev."""
    cgroup: tuple[str, ...] | None = None
    """The rules of the device cgroup; None where they cannot be read, as with cgroup v2."""
    capabilities: int = 0
    """The bounding set."""
    groups: tuple[int, ...] = ()
    """Supplementary ones: the node can give some with its devices (CDI's additionalGids)."""
    files: tuple[Device, ...] = ()
    """What the driver's files in /proc tell of GPUs of the node; they need not be the container's."""
    driver: Driver = field(default_factory=Driver)
    seconds: float = 0.0
    """How long it took to see all of this."""

    def json(self) -> Json:
        """For `of`."""
        return asdict(self)

    @classmethod
    def of(cls, found: Json) -> "Evidence":
        """Read what `json` has made.

        Raises:
            ValueError: it is something else.
        """
        try:
            driver = found["driver"]
            return cls(
                **{
                    **found,
                    "mounts": tuple(found["mounts"]),
                    "nodes": tuple(Node(**one) for one in found["nodes"]),
                    "cgroup": None if found["cgroup"] is None else tuple(found["cgroup"]),
                    "groups": tuple(found["groups"]),
                    "files": _devices(found["files"]),
                    "driver": Driver(**{**driver, "devices": _devices(driver["devices"])}),
                }
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is not what a probe says ({error!r})") from error

    def allows(self, minor: int) -> bool:
        """Whether /dev/nvidia<minor> is there and may be used, as far as can be seen."""
        node = next((one for one in self.nodes if one.path == f"/dev/nvidia{minor}"), None)
        return node is not None and self.covers(node)

    def covers(self, node: Node) -> bool:
        """Whether the device cgroup lets a node be used, as far as it can be read."""
        return self.cgroup is None or any(_covers(rule, node) for rule in self.cgroup)

    @property
    def unlimited(self) -> bool:
        """Whether the container may use every device of the node: it is privileged."""
        if self.cgroup is not None:
            return any(rule.startswith("a *:*") for rule in self.cgroup)
        return bool(self.capabilities >> _SYS_ADMIN & 1)


_SYS_ADMIN = 21
"""CAP_SYS_ADMIN (linux/capability.h)."""


def _covers(rule: str, node: Node) -> bool:
    """Whether a line of devices.list (Documentation/admin-guide/cgroup-v1/devices.rst) lets a node be used."""
    match rule.split():
        case ["a" as kind, numbers, access] | ["b" | "c" as kind, numbers, access]:
            major, _, minor = numbers.partition(":")
            return (
                kind in ("a", node.kind)
                and major in ("*", str(node.major))
                and minor in ("*", str(node.minor))
                and {"r", "w"} <= set(access)
            )
    return False


def _devices(found: list[Json]) -> tuple[Device, ...]:
    return tuple(
        Device(**{**one, "instance": None if one.get("instance") is None else tuple(one["instance"])}) for one in found
    )
