"""Evidence of the probe in the payload container, as data without I/O.

The probe sends it to the engine as JSON. The pod stores it for later engines.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG device."""

    uuid: str
    """Name in all of k8spilot, from NVML: GPU-8f9c2d75-..., MIG-..."""
    name: str = ""
    index: int | None = None
    """NVML's index; a container counts from 0."""
    minor: int | None = None
    """Minor number of its node /dev/nvidia<minor>."""
    pci: str = ""
    """PCI address: domain:bus:device.function."""
    memory_mb: int | None = None
    """Total memory, in MiB."""
    capability: str = ""
    """CUDA's compute capability, such as 9.0."""
    ecc: bool | None = None
    clock_mhz: int | None = None
    """Highest clock of its multiprocessors, in MHz."""
    cores: int | None = None
    """Number of CUDA cores."""
    units: int | None = None
    """Number of multiprocessors, if the driver reports it."""
    divided: bool = False
    """Whether the GPU is in MIG mode: its parts are devices, and it is not a device itself."""
    parent: str = ""
    """UUID of the whole GPU, for a MIG device."""
    instance: tuple[int, int] | None = None
    """Numbers of the GPU instance and the compute instance, for a MIG device."""


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
    """The driver's answers through its library."""

    error: str = ""
    """Reason of a failed query; empty if it succeeded."""
    version: str = ""
    """Version of the driver, such as 580.159.04."""
    cuda: int | None = None
    """Newest CUDA version that the driver supports, such as 13000."""
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All evidence of a probe."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that concern GPUs."""
    mounts: tuple[str, ...] = ()
    """Entries of the folder of mounts that stand for devices, by path below it."""
    nodes: tuple[Node, ...] = ()
    """Device nodes of /dev."""
    cgroup: tuple[str, ...] | None = None
    """Rules of the device cgroup; None where they cannot be read, as with cgroup v2."""
    capabilities: int = 0
    """Bounding set of capabilities."""
    groups: tuple[int, ...] = ()
    """Supplementary groups: the node can add groups with its devices (CDI's additionalGids)."""
    files: tuple[Device, ...] = ()
    """GPUs of the node in the driver's files in /proc. They may belong to other containers."""
    driver: Driver = field(default_factory=Driver)
    seconds: float = 0.0
    """Duration of the probe in seconds."""

    def json(self) -> Json:
        """Return a JSON object for `of`."""
        return asdict(self)

    @classmethod
    def of(cls, values: Json) -> "Evidence":
        """Read an object of `json`.

        Raises:
            ValueError: the object has another form.
        """
        try:
            driver = values["driver"]
            return cls(
                **{
                    **values,
                    "mounts": tuple(values["mounts"]),
                    "nodes": tuple(Node(**node) for node in values["nodes"]),
                    "cgroup": None if values["cgroup"] is None else tuple(values["cgroup"]),
                    "groups": tuple(values["groups"]),
                    "files": _devices(values["files"]),
                    "driver": Driver(**{**driver, "devices": _devices(driver["devices"])}),
                }
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is not the output of a probe ({error!r})") from error

    def allows(self, minor: int) -> bool:
        """Return whether /dev/nvidia<minor> exists and may be used, as far as the evidence shows."""
        node = next((node for node in self.nodes if node.path == f"/dev/nvidia{minor}"), None)
        return node is not None and self.covers(node)

    def covers(self, node: Node) -> bool:
        """Return whether the device cgroup allows a node, as far as it can be read."""
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
    """Return whether a line of devices.list allows a node.

    Format: Documentation/admin-guide/cgroup-v1/devices.rst.
    """
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


def _devices(values: list[Json]) -> tuple[Device, ...]:
    return tuple(
        Device(**{**value, "instance": None if value.get("instance") is None else tuple(value["instance"])})
        for value in values
    )
