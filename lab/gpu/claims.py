"""The lab's GPUs for ResourceClaims: the devices that NVIDIA's DRA driver publishes, and its changes of containers.

As in kubernetes-sigs/dra-driver-nvidia-gpu: names and attributes of the devices (cmd/gpu-kubelet-plugin/deviceinfo.go,
mig.go), the CDI spec of a claim (cdi.go), the DeviceClasses of its Helm chart. The program is lab/go/dra; lab/dra.py
starts it on demand.
"""

from typing import Any, Final

from lab.gpu import nvml
from lab.gpu.devices import CDI_VERSION, Inventory, common_edits

DRIVER: Final = "gpu.nvidia.com"
MIG_CLASS: Final = "mig.nvidia.com"
PROFILE: Final = "1g.18gb"
_KIND: Final = f"k8s.{DRIVER}/claim"
_GPU_INSTANCE_PROFILE: Final = 19

Json = dict[str, Any]


def classes() -> list[Json]:
    """The DeviceClasses, by the names that users know."""
    return [_device_class(DRIVER, "gpu"), _device_class(MIG_CLASS, "mig")]


def _device_class(name: str, kind: str) -> Json:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def names(inventory: Inventory) -> dict[str, str]:
    """The uuids of the devices, by their names in ResourceSlices and in the status of claims."""
    return {device["name"]: device["attributes"]["uuid"]["string"] for device in _devices(inventory)}


def table(inventory: Inventory, library: str, settings: str) -> Json:
    """The table of devices and CDI edits that the driver (lab/go/dra) reads."""
    return {
        "driver": DRIVER,
        "kind": _KIND,
        "version": CDI_VERSION,
        "devices": _devices(inventory),
        "edits": {name: inventory.edits(uuid) for name, uuid in names(inventory).items()},
        "common": common_edits(library, settings),
    }


def _devices(inventory: Inventory) -> list[Json]:
    found = []
    for gpu in inventory.driver.gpus:
        if gpu.uuid in inventory.claimed:
            attributes = {"type": "gpu", "uuid": gpu.uuid}
            found.append(_device(f"gpu-{gpu.minor}", gpu, gpu.memory_bytes, attributes, inventory.driver))
        for place, part in enumerate(gpu.instances):
            if part.uuid in inventory.claimed:
                name = f"gpu-{gpu.minor}-mig-{PROFILE.replace('.', '')}-{_GPU_INSTANCE_PROFILE}-{place}"
                attributes = {"type": "mig", "uuid": part.uuid, "parentUUID": gpu.uuid, "profile": PROFILE}
                found.append(_device(name, gpu, part.memory_bytes, attributes, inventory.driver))
    return found


def _device(name: str, gpu: nvml.Gpu, memory: int, attributes: dict[str, str], driver: nvml.Driver) -> Json:
    texts = {**attributes, "productName": gpu.name, "brand": "Nvidia", "architecture": "Hopper"}
    major, minor, patch = (int(part) for part in driver.version.split("."))
    versions = {
        "cudaComputeCapability": f"{gpu.capability}.0",
        "driverVersion": f"{major}.{minor}.{patch}",
        "cudaDriverVersion": f"{driver.cuda // 1000}.{driver.cuda % 1000 // 10}.0",
    }
    return {
        "name": name,
        "attributes": {
            **{key: {"string": value} for key, value in texts.items()},
            **{key: {"version": value} for key, value in versions.items()},
        },
        "capacity": {"memory": {"value": str(memory)}},
    }
