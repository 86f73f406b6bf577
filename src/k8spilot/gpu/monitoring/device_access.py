"""Ways to give the GPU metrics container the payload container's GPUs; pure.

The kubelet gives an ephemeral container no resources, and so no devices. The container gets what the node's runtime
derives from its environment and its mounts. The right way depends on how the payload container got its devices. Where
there is no way, only an administrator can help.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

NULL: Final = "/dev/null"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_FOLDER: Final = "/var/run/nvidia-container-devices"
_CDI: Final = "k8s.device-plugin.nvidia.com/gpu"
"""Kind in the CDI specification that NVIDIA's device plugin writes."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One way for a container to request devices."""

    visible: str
    """NVIDIA_VISIBLE_DEVICES; unique among the requests."""
    help: str
    """Advice to an administrator if the container does not get them: a clause."""
    mounts: tuple[tuple[str, str], ...] = ()
    """Volumes of the pod, with their mount paths."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the container."""
        return {VISIBLE: self.visible, _CAPABILITIES: "utility"}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Reason why no request can work."""

    reason: str
    """A sentence without its full stop."""


def device_requests(
    strategy: str, expected: Sequence[str], uuids: Sequence[str], pod: dict[str, Any], payload: str
) -> list[DeviceRequest] | Unavailable:
    """Return the possible requests, the most promising first.

    Args:
        strategy: how the payload container got its devices (gpu/discovery/verdict.py).
        expected: their ids in the payload container's variables or mounts.
        uuids: their names in the driver.
        pod: the pod as the API's JSON.
        payload: name of the payload container.
    """
    names = ",".join(uuids)
    if _claims(pod, payload):
        return Unavailable(
            "the pod's GPUs come from a ResourceClaim, which an ephemeral container cannot have; use the component "
            "gpu-dra-metrics, whose sidecar has the same claim"
        )
    runtime = (
        "let NVIDIA's runtime handle the pod: set runtimeClassName: nvidia in its spec (NVIDIA's GPU operator creates "
        "that RuntimeClass), or make it the node's default runtime"
    )
    if pod.get("spec", {}).get("runtimeClassName"):
        runtime = (
            f"check that the RuntimeClass {pod['spec']['runtimeClassName']} of the pod is NVIDIA's runtime, and that "
            "its configuration on the node accepts NVIDIA_VISIBLE_DEVICES from containers "
            "(accept-nvidia-visible-devices-envvar-when-unprivileged)"
        )
    if strategy == "variable":
        return [DeviceRequest(names, runtime)]
    if strategy == "volume-mounts":
        return _by_mounts(expected, names, pod, runtime)
    # With CDI the runtime accepts CDI names. A bare UUID works with a runtime that generates specifications (jit-cdi,
    # from version 1.18 of the toolkit), or with an older mode. Other runtimes fail with a bare UUID, so it comes
    # second.
    return [DeviceRequest(",".join(f"{_CDI}={uuid}" for uuid in uuids), runtime), DeviceRequest(names, runtime)]


def _by_mounts(expected: Sequence[str], names: str, pod: dict[str, Any], runtime: str) -> list[DeviceRequest]:
    volume = next(
        (
            str(item["name"])
            for item in pod.get("spec", {}).get("volumes", [])
            if item.get("hostPath", {}).get("path") == NULL
        ),
        None,
    )
    if volume is None:
        # By default the runtime accepts the variable from unprivileged containers.
        return [
            DeviceRequest(
                names,
                f"add a hostPath volume of {NULL} to the pod, for which its namespace must allow hostPath volumes, as "
                "Pod Security baseline does not; or set "
                "accept-nvidia-visible-devices-envvar-when-unprivileged in the configuration of NVIDIA's toolkit; or "
                "let the device plugin use cdi-cri",
            )
        ]
    mounts = tuple((volume, f"{_FOLDER}/{item}") for item in expected if _is_plain(item))
    return [DeviceRequest(_FOLDER, runtime, mounts)]


def _is_plain(device: str) -> bool:
    return ".." not in device.split("/") and not device.startswith("/")


def _claims(pod: dict[str, Any], payload: str) -> bool:
    """Return whether the payload container has devices of a ResourceClaim."""
    spec = pod.get("spec", {})
    payloads = [
        item for item in (*spec.get("initContainers", []), *spec.get("containers", [])) if item["name"] == payload
    ]
    return any(item.get("resources", {}).get("claims") for item in payloads)
