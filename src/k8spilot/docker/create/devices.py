"""Devices that a job asks for, against those of the pod; no input or output here.

The kubelet gave the payload container its devices when the pod started, and nothing can be added. So what is there
already is fine, and everything else is refused with a sentence that says what there is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from k8spilot.common.errors import Refused
from k8spilot.gpu.discovery.evidence import Device
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.htcondor.inventory import short

_BY_HTCONDOR: Final = frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm"})
"""What a starter adds for every job with a GPU (docker-api.cpp); whether CUDA needs them, the node's driver decides."""
_DRIVERS: Final = frozenset({"", "nvidia", "cdi"})
_CAPABILITIES: Final = frozenset({"gpu", "nvidia", "compute", "utility", "graphics", "video", "display", "compat32"})
"""What the docker CLI asks for with --gpus (NVIDIA_DRIVER_CAPABILITIES); which ones there are, the pod has settled."""
_CDI: Final = re.compile(r"(?P<vendor>[\w.-]+)/(?P<class>[\w.-]+)=(?P<name>.+)")

_NONE: Final = {
    "CUDA_VISIBLE_DEVICES": "10000",
    "GPU_DEVICE_ORDINAL": "10000",
    "NVIDIA_VISIBLE_DEVICES": "none",
    "_CONDOR_AssignedGPUs": "10000",
}
"""What HTCondor says to a job without a GPU (ENVIRONMENT_VALUE_FOR_UnAssignedGPUs)."""
_ASSIGNED: Final = re.compile(rf"(?P<name>{'|'.join(_NONE)})=(?P<ids>.*)")


def check_devices(devices: Iterable[Mapping[str, Any]], requests: Iterable[Mapping[str, Any]], gpus: GpuRecord) -> None:
    """See that all devices are there that a `docker create` asks for.

    Args:
        devices: HostConfig.Devices, from --device.
        requests: HostConfig.DeviceRequests, from --gpus and from --device with a name of CDI.
        gpus: what the pod has.

    Raises:
        Refused: one is not.
    """
    for device in devices:
        _check_node(device, gpus)
    for request in requests:
        _check_request(request, gpus.usable)


def _check_node(device: Mapping[str, Any], gpus: GpuRecord) -> None:
    source, target = str(device.get("PathOnHost", "")), str(device.get("PathInContainer", ""))
    there = {node.path for node in gpus.evidence.nodes}
    if target not in ("", source):
        raise Refused(
            f"the device {source} cannot be provided as {target}: a pod's devices have the paths that the node gives "
            "them (docker option --device)"
        )
    if source not in there and not (source in _BY_HTCONDOR and gpus.usable):
        raise Refused(
            f"the device {source} is not in the pod, whose devices are fixed when it starts; ask the site for it "
            "(docker option --device)"
        )


def _check_request(request: Mapping[str, Any], usable: Sequence[Device]) -> None:
    driver, count = str(request.get("Driver") or ""), int(request.get("Count") or 0)
    asked = [str(one) for one in request.get("DeviceIDs") or ()]
    option = "--device" if driver == "cdi" else "--gpus"
    unknown = {one for some in request.get("Capabilities") or () for one in some} - _CAPABILITIES
    if driver not in _DRIVERS or unknown:
        what = ", ".join(sorted(unknown)) or driver
        raise Refused(f"devices of the kind {what} are not available in this pod (docker option {option})")
    for one in asked:
        if not _is_there(one, usable):
            raise Refused(f"the GPU {one} is not in the pod, which has {_have(usable)} (docker option {option} {one})")
    if not asked and (not usable or count > len(usable)):
        wanted = "GPUs" if count < 0 else f"{count} GPUs"
        raise Refused(
            f"the job asks docker for {wanted}, and the pod has {_have(usable)}; ask HTCondor for them with "
            "request_gpus, and it finds a slot that has them (docker option --gpus)"
        )


def _is_there(asked: str, usable: Sequence[Device]) -> bool:
    """Whether an id, an index, or a name of CDI means GPUs of the pod."""
    if qualified := _CDI.fullmatch(asked):
        known = qualified["vendor"] == "nvidia.com" or qualified["vendor"].endswith(".nvidia.com")
        return known and (bool(usable) if qualified["name"] == "all" else _is_there(qualified["name"], usable))
    if asked.isdecimal():
        return int(asked) < len(usable)
    return any(asked in (one.uuid, one.uuid.removeprefix("GPU-"), short(one.uuid)) for one in usable)


def _have(usable: Sequence[Device]) -> str:
    return ", ".join(one.uuid for one in usable) or "none"


def visible(environment: Iterable[str], wanted: int | None) -> Iterator[str]:
    """A job's environment, in which it sees as many of the slot's GPUs as it asked for.

    The slot has all GPUs of the pod and runs one job, so HTCondor names all of them to each job.

    Args:
        environment: NAME=VALUE each.
        wanted: how many GPUs the job has asked for; None if nobody knows.
    """
    for one in environment:
        found = _ASSIGNED.fullmatch(one) if wanted is not None else None
        if found is None or not found["ids"].startswith(("GPU-", "MIG-")):
            yield one
        else:
            ids = found["ids"].split(",")[:wanted]
            yield f"{found['name']}={','.join(ids) or _NONE[found['name']]}"
