"""How a second container of the pod can be given the GPUs that the payload container has; pure.

An ephemeral container gets nothing from the kubelet: no resources, and so no devices. It gets what the node's runtime
makes of its environment and its mounts. What that takes depends on how the payload container got its devices, and where
it cannot be had, only an administrator can help.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

NULL: Final = "/dev/null"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_FOLDER: Final = "/var/run/nvidia-container-devices"
_CDI: Final = "k8s.device-plugin.nvidia.com/gpu"
"""The kind in the CDI specification that NVIDIA's device plugin writes."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to ask for the devices."""

    visible: str
    """NVIDIA_VISIBLE_DEVICES; tells attempts from one another."""
    help: str
    """What an administrator can do if it does not work: a clause."""
    mounts: tuple[tuple[str, str], ...] = ()
    """Volumes of the pod, and where they are to be."""

    @property
    def environment(self) -> dict[str, str]:
        """Of the container."""
        return {VISIBLE: self.visible, _CAPABILITIES: "utility"}


@dataclass(frozen=True, slots=True)
class Hopeless:
    """There is no way, and why: a sentence without its stop."""

    words: str


def attempts(
    strategy: str, expected: Sequence[str], uuids: Sequence[str], pod: dict[str, Any], payload: str
) -> list[Attempt] | Hopeless:
    """The ways to ask, the likeliest first.

    Args:
        strategy: how the payload container got its devices (strategy.py).
        expected: their ids, as the container was told.
        uuids: their names, as the driver says.
        pod: in the API's JSON.
        payload: the payload container's name.
    """
    names = ",".join(uuids)
    if _claims(pod, payload):
        return Hopeless(
            "the pod's GPUs come from a ResourceClaim, which an ephemeral container cannot have; there is nothing an "
            "administrator could change but to give out GPUs by a device plugin"
        )
    runtime = (
        "have NVIDIA's runtime handle the pod: set runtimeClassName: nvidia in its spec (NVIDIA's GPU operator makes "
        "that RuntimeClass), or make it the node's default runtime"
    )
    if pod.get("spec", {}).get("runtimeClassName"):
        runtime = (
            f"see that the RuntimeClass {pod['spec']['runtimeClassName']} of the pod is NVIDIA's runtime, and that its "
            "configuration on the node lets containers ask by NVIDIA_VISIBLE_DEVICES "
            "(accept-nvidia-visible-devices-envvar-when-unprivileged)"
        )
    if strategy == "variable":
        return [Attempt(names, runtime)]
    if strategy == "volume-mounts":
        return _by_mounts(expected, names, pod, runtime)
    # With CDI the runtime takes names of CDI. A bare uuid is for one that makes specifications by itself (jit-cdi, from
    # version 1.18 of the toolkit), or for an older mode; it makes others fail, and so comes second.
    return [Attempt(",".join(f"{_CDI}={uuid}" for uuid in uuids), runtime), Attempt(names, runtime)]


def _by_mounts(expected: Sequence[str], names: str, pod: dict[str, Any], runtime: str) -> list[Attempt]:
    volume = next(
        (
            str(one["name"])
            for one in pod.get("spec", {}).get("volumes", [])
            if one.get("hostPath", {}).get("path") == NULL
        ),
        None,
    )
    if volume is None:
        # Where the runtime still takes the variable from containers without privileges, which is its default.
        return [
            Attempt(
                names,
                f"add a hostPath volume of {NULL} to the pod, for which its namespace must allow hostPath volumes, as "
                "Pod Security baseline does not; or set "
                "accept-nvidia-visible-devices-envvar-when-unprivileged in the configuration of NVIDIA's toolkit; or "
                "have the device plugin use cdi-cri",
            )
        ]
    mounts = tuple((volume, f"{_FOLDER}/{one}") for one in expected if _is_plain(one))
    return [Attempt(_FOLDER, runtime, mounts)]


def _is_plain(device: str) -> bool:
    return ".." not in device.split("/") and not device.startswith("/")


def _claims(pod: dict[str, Any], payload: str) -> bool:
    """Whether the payload container has devices of a ResourceClaim."""
    spec = pod.get("spec", {})
    found = [one for one in (*spec.get("initContainers", []), *spec.get("containers", [])) if one["name"] == payload]
    return any(one.get("resources", {}).get("claims") for one in found)
