"""Resources of the payload containers that `k8spilot slots` makes of one."""

import math
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common.errors import SettingsError
from k8spilot.gpu.discovery.claims import NO_CLAIMS, Claims
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.model.slot_sizes import IDLE
from k8spilot.preflight.slot_size import quantity
from k8spilot.settings import Settings

Json = dict[str, Any]

_UNITS: Final = {"cpu": ("m", 1e-3), "memory": ("Mi", 2**20), "ephemeral-storage": ("Mi", 2**20)}
"""Resources that are divided, with the unit in which a share is written: its suffix and size."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Resources of each payload container."""

    plain: Json
    """`resources` of a container without GPUs."""
    with_gpus: Json
    """`resources` of a container with GPUs; without claims, of which each container gets its own."""
    gpu_containers: int
    """Number of containers with GPUs: the last ones."""
    gpus: int
    """Number of GPUs of each."""


def divide(payload: Json, number: int, gpu_containers: int | None, claims: Claims = NO_CLAIMS) -> Shares:
    """Return the resources of each of `number` containers in place of `payload`.

    Args:
        payload: the payload container in the pod's specification.
        number: number of containers.
        gpu_containers: number of containers that get the GPUs; None for all if it has GPUs.
        claims: what the claims of the pod request, as far as the manifest says.

    Raises:
        SettingsError: a resource cannot be divided, or each would have less than one CPU.
    """
    resources, gpus = payload.get("resources") or {}, PodRequest.of(payload, claims)
    claimed = _claimed(resources.get("claims") or [], claims)
    if gpu_containers and not gpus.count:
        raise SettingsError(
            "the payload container has no GPUs; add the component gpu or gpu-dra, or remove --gpu-containers"
        )
    among = (number if gpu_containers is None else gpu_containers) if gpus.count else 0
    if among > number or (gpus.count and not among):
        raise SettingsError(f"--gpu-containers must be from 1 to {number}, the number of payload containers")
    plain: Json = {}
    with_gpus: Json = {}
    for kind, values in resources.items():
        if kind == "claims":
            continue
        if kind not in ("requests", "limits"):
            raise SettingsError(
                f"the payload container has resources.{kind}, which k8spilot does not divide; remove it"
            )
        plain[kind] = {name: _part(name, value, number) for name, value in values.items() if name not in gpus.nvidia}
        devices = {name: _devices(name, gpus.nvidia[name], among) for name in values if name in gpus.nvidia}
        with_gpus[kind] = {**plain[kind], **devices}
    _check_cpus(resources.get("limits", {}).get("cpu"), number)
    return Shares(plain, with_gpus, among, (gpus.count - claimed) // among + claimed if among else 0)


def _claimed(entries: list[Json], claims: Claims) -> int:
    """Return the number of GPUs of a container's claims, of which each container with GPUs gets its own."""
    request = PodRequest.of({"resources": {"claims": entries}}, claims)
    if others := [*request.others, *request.unknown, *request.uncounted]:
        raise SettingsError(
            f"the payload container has the {', '.join(others)}, and the manifest does not say how many GPUs of "
            "NVIDIA it is for; let it be for a fixed number of gpu.nvidia.com or mig.nvidia.com, with its "
            "ResourceClaimTemplate in the manifest"
        )
    return request.count


def _part(name: str, value: object, number: int) -> str:
    if name not in _UNITS:
        raise SettingsError(
            f"the payload container has {name}, which k8spilot does not divide among several; use one payload "
            "container, or remove it"
        )
    suffix, size = _UNITS[name]
    return f"{math.floor(quantity(value) / size / number + 1e-6)}{suffix}"


def _devices(name: str, count: int, containers: int) -> str:
    if count % containers:
        raise SettingsError(
            f"the payload container has {name}: {count}, which {containers} payload containers cannot divide; set "
            "--gpu-containers to a number that divides it"
        )
    return str(count // containers)


def _check_cpus(cpus: object, number: int) -> None:
    if cpus is not None and (quantity(cpus) < number or quantity(cpus) % number):
        raise SettingsError(
            f"the payload container has a limit of {cpus} CPUs, and {number} payload containers need a multiple of "
            f"{number}: HTCondor's slots have whole CPUs; set the resources of the container "
            f"{Settings.payload_container} to those of all its jobs together"
        )


def together(lasting: list[Json], kind: str, dynamic: int) -> Json:
    """Return what a pod needs for all containers, and for payload containers that are idle while others have jobs.

    Args:
        lasting: containers that run as long as the pod.
        kind: `requests` or `limits`.
        dynamic: number of payload containers whose sizes change.

    Raises:
        SettingsError: a container has no limit.
    """
    cpu, memory = IDLE.cpu * dynamic, IDLE.memory * dynamic
    for container in lasting:
        resources = container.get("resources") or {}
        values = {**resources.get("limits", {}), **resources.get(kind, {})}
        if "cpu" not in values or "memory" not in values:
            raise SettingsError(
                f"the container {container['name']} has no limits of cpu and memory, so that k8spilot cannot compute "
                "the resources of the pod; set them, or use --equal"
            )
        cpu += math.ceil(quantity(values["cpu"]) * 1000 - 1e-6)
        memory += math.ceil(quantity(values["memory"]) / 2**20 - 1e-6)
    return {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
