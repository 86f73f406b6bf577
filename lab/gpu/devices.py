"""The lab's GPUs. Each way in which GPUs come into pods has devices of its own, so that tests do not share any."""

from dataclasses import asdict, dataclass, field
from typing import Any

from lab.gpu import nvml

MAJOR = 195
UVM_MAJOR = 240
CAPS_MAJOR = 241
"""Major device numbers: the latter two are from the range for local use, where NVIDIA's driver takes a free one."""

KIND = "k8s.device-plugin.nvidia.com/gpu"
"""Vendor and class of the CDI names that NVIDIA's device plugin makes."""

CDI_VERSION = "0.5.0"
LIBRARY_IN_CONTAINER = f"/usr/lib/x86_64-linux-gnu/{nvml.LIBRARY}"
SETTINGS_IN_CONTAINER = "/run/nvml-stub"


@dataclass(frozen=True)
class Node:
    """A character device."""

    path: str
    major: int
    minor: int


CONTROL = (
    Node("/dev/nvidiactl", MAJOR, 255),
    Node("/dev/nvidia-uvm", UVM_MAJOR, 0),
    Node("/dev/nvidia-uvm-tools", UVM_MAJOR, 1),
)
"""Device nodes of every container with a GPU."""


@dataclass(frozen=True)
class Resource:
    """An extended resource that pods request, and the settings with which NVIDIA's device plugin provides it."""

    name: str
    lists: tuple[str, ...] = ("envvar",)
    """Device list strategies, as the plugin calls them."""
    by_index: bool = False
    """The plugin's device id strategy `index`: lists have positions instead of uuids."""
    device_specs: bool = False
    """PASS_DEVICE_SPECS: nodes come from the kubelet, too."""
    replicas: int = 1
    """Devices of each GPU, as with time slicing."""
    mig: bool = False
    broken: bool = False
    """Whether the plugin gives a wrong device in place of the last one that it has promised.

    The library comes as a mount of the kubelet, so this works without a runtime class. With one, the container has both
    devices.
    """

    @property
    def gpus(self) -> int:
        """Number of whole GPUs behind the resource's four devices, including the wrong one of a broken resource."""
        return 2 if self.mig or self.replicas > 1 else 5 if self.broken else 4


RESOURCES = (
    Resource("nvidia.com/gpu"),
    Resource("nvidia.com/gpu-mounts", ("volume-mounts",)),
    Resource("nvidia.com/gpu-cdi-annotations", ("cdi-annotations",)),
    Resource("nvidia.com/gpu-cdi", ("cdi-cri",)),
    Resource("nvidia.com/gpu-device-specs", device_specs=True),
    Resource("nvidia.com/gpu-index", by_index=True),
    Resource("nvidia.com/gpu.shared", replicas=2),
    Resource("nvidia.com/mig-1g.18gb", mig=True),
    Resource("nvidia.com/gpu-broken", device_specs=True, broken=True),
)


@dataclass
class Inventory:
    """All devices of the node: as the driver, the device plugin and CDI have them."""

    driver: nvml.Driver = field(default_factory=lambda: nvml.Driver(nodes="/dev"))
    nodes: dict[str, list[Node]] = field(default_factory=dict)
    """Device nodes that a container needs for a device, by the device's uuid."""
    ids: dict[str, list[str]] = field(default_factory=dict)
    """Devices of each resource, as the kubelet names them, by the resource's name."""
    instead: dict[str, str] = field(default_factory=dict)
    claimed: list[str] = field(default_factory=list)
    """Devices that come by ResourceClaims (lab/gpu/claims.py): the uuids of four GPUs and of two MIG instances."""

    @classmethod
    def make(cls) -> "Inventory":
        """Return the devices of all resources, and those of claims."""
        inventory = cls()
        for resource in RESOURCES:
            inventory._add(resource)
        inventory.claimed = [inventory._gpu().uuid for _ in range(4)]
        divided = inventory._gpu()
        inventory.claimed += [inventory._mig(divided, number) for number in range(2)]
        return inventory

    def _add(self, resource: Resource) -> None:
        gpus = [self._gpu() for _ in range(resource.gpus)]
        if resource.mig:
            self.ids[resource.name] = [self._mig(gpu, number) for gpu in gpus for number in range(2)]
        elif resource.replicas > 1:
            self.ids[resource.name] = [f"{gpu.uuid}::{n}" for gpu in gpus for n in range(resource.replicas)]
        else:
            self.ids[resource.name] = [gpu.uuid for gpu in gpus[:4]]
        if resource.broken:
            self.instead[resource.name] = gpus[-1].uuid

    def _gpu(self) -> nvml.Gpu:
        minor = len(self.driver.gpus)
        gpu = nvml.h200(minor, f"GPU-{minor:08x}-1ab0-4000-8000-00000000000{minor % 10}")
        self.driver.gpus.append(gpu)
        self.nodes[gpu.uuid] = [Node(f"/dev/nvidia{minor}", MAJOR, minor)]
        return gpu

    def _mig(self, gpu: nvml.Gpu, number: int) -> str:
        """Add a MIG instance. It is visible only to processes that may open its GPU and its two capabilities."""
        first = 1 + gpu.minor * 16 + number * 2
        uuid = f"MIG-{gpu.minor:08x}-1ab0-5000-8000-00000000000{number}"
        gpu.instances.append(nvml.slice_of_h200(number, uuid, (first, first + 1)))
        caps = [Node(f"/dev/nvidia-caps/nvidia-cap{cap}", CAPS_MAJOR, cap) for cap in (first, first + 1)]
        self.nodes[uuid] = [*self.nodes[gpu.uuid], *caps]
        return uuid

    @property
    def all_nodes(self) -> list[Node]:
        """Device nodes of all devices, each once."""
        return list(dict.fromkeys([*CONTROL, *(node for nodes in self.nodes.values() for node in nodes)]))

    def table(self, library: str, settings: str, specs: str) -> dict[str, Any]:
        """Return the table that the programs of lab/go/gpu read: the device plugin and the container runtime."""
        index = {gpu.uuid: str(gpu.minor) for gpu in self.driver.gpus}
        devices = [
            {"uuid": uuid, "index": index.get(uuid, ""), "nodes": [asdict(node) for node in nodes]}
            for uuid, nodes in self.nodes.items()
        ]
        resources = [
            {
                "name": resource.name,
                "ids": self.ids[resource.name],
                "lists": resource.lists,
                "by_index": resource.by_index,
                "device_specs": resource.device_specs,
                "library": resource.broken,
                "instead": self.instead.get(resource.name, ""),
            }
            for resource in RESOURCES
        ]
        control = [asdict(node) for node in CONTROL]
        return {
            "library": library,
            "settings": settings,
            "specs": specs,
            "kind": KIND,
            "control": control,
            "devices": devices,
            "resources": resources,
        }

    def cdi(self, library: str, settings: str) -> dict[str, Any]:
        """Return the CDI spec of the devices, as NVIDIA's device plugin writes it."""
        return {
            "cdiVersion": CDI_VERSION,
            "kind": KIND,
            "devices": [{"name": uuid, "containerEdits": self.edits(uuid)} for uuid in self.nodes],
            "containerEdits": common_edits(library, settings),
        }

    def edits(self, uuid: str) -> dict[str, Any]:
        """Return CDI's edits of a container that gets the device: its nodes."""
        return {"deviceNodes": [_for_cdi(node) for node in self.nodes[uuid]]}


def common_edits(library: str, settings: str) -> dict[str, Any]:
    """Return CDI's edits of every container that gets any device: a variable, common nodes and the library."""
    options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    return {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [_for_cdi(node) for node in CONTROL],
        "mounts": [
            {"hostPath": library, "containerPath": LIBRARY_IN_CONTAINER, "options": options},
            {"hostPath": settings, "containerPath": SETTINGS_IN_CONTAINER, "options": options},
        ],
    }


def _for_cdi(node: Node) -> dict[str, Any]:
    return {**asdict(node), "type": "c", "fileMode": 0o666}
