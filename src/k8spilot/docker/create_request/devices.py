"""Devices in a request, compared with the pod's; no I/O.

The kubelet gave the payload container its devices when the pod started, and none can be added. A request for an
existing device is allowed. Any other is refused with a sentence that lists the existing devices.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from k8spilot.common.errors import Refused
from k8spilot.gpu.discovery.evidence import Device
from k8spilot.gpu.discovery.names import short
from k8spilot.gpu.discovery.record import GpuRecord

_BY_HTCONDOR: Final = frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm"})
"""Devices that a starter adds for every job with a GPU (docker-api.cpp). The node's driver decides whether CUDA
needs them."""
_DRIVERS: Final = frozenset({"", "nvidia", "cdi"})
_CAPABILITIES: Final = frozenset({"gpu", "nvidia", "compute", "utility", "graphics", "video", "display", "compat32"})
"""Capabilities that the docker CLI requests with --gpus (NVIDIA_DRIVER_CAPABILITIES). The pod has fixed its own."""
_CDI: Final = re.compile(r"(?P<vendor>[\w.-]+)/(?P<class>[\w.-]+)=(?P<name>.+)")

_NONE: Final = {
    "CUDA_VISIBLE_DEVICES": "10000",
    "GPU_DEVICE_ORDINAL": "10000",
    "NVIDIA_VISIBLE_DEVICES": "none",
    "_CONDOR_AssignedGPUs": "10000",
}
"""Values of HTCondor for a job without a GPU (ENVIRONMENT_VALUE_FOR_UnAssignedGPUs)."""
_ASSIGNED: Final = re.compile(rf"(?P<name>{'|'.join(_NONE)})=(?P<ids>.*)")


def check_devices(devices: Iterable[Mapping[str, Any]], requests: Iterable[Mapping[str, Any]], gpus: GpuRecord) -> None:
    """Check that the pod has all devices of a `docker create`.

    Args:
        devices: HostConfig.Devices, from --device.
        requests: HostConfig.DeviceRequests, from --gpus and from --device with a CDI name.
        gpus: the pod's GPUs.

    Raises:
        Refused: a device is missing.
    """
    for device in devices:
        _check_node(device, gpus)
    for request in requests:
        _check_request(request, gpus.usable)


def _check_node(device: Mapping[str, Any], gpus: GpuRecord) -> None:
    source, target = str(device.get("PathOnHost", "")), str(device.get("PathInContainer", ""))
    paths = {node.path for node in gpus.evidence.nodes}
    if target not in ("", source):
        raise Refused(
            f"the device {source} is not available as {target}: a pod's devices have the node's paths "
            "(docker option --device)"
        )
    if source not in paths and not (source in _BY_HTCONDOR and gpus.usable):
        raise Refused(
            f"the pod does not have the device {source}, and its devices are fixed when it starts; ask the site for it "
            "(docker option --device)"
        )


def _check_request(request: Mapping[str, Any], usable: Sequence[Device]) -> None:
    driver, count = str(request.get("Driver") or ""), int(request.get("Count") or 0)
    requested = [str(device) for device in request.get("DeviceIDs") or ()]
    option = "--device" if driver == "cdi" else "--gpus"
    unknown = {capability for group in request.get("Capabilities") or () for capability in group} - _CAPABILITIES
    if driver not in _DRIVERS or unknown:
        kind = ", ".join(sorted(unknown)) or driver
        raise Refused(f"devices of the kind {kind} are not available in this pod (docker option {option})")
    for device in requested:
        if not _is_available(device, usable):
            raise Refused(
                f"the pod does not have the GPU {device}; its GPUs: {_listed(usable)} (docker option {option} {device})"
            )
    if not requested and (not usable or count > len(usable)):
        wanted = "GPUs" if count < 0 else f"{count} GPUs"
        raise Refused(
            f"the job requests {wanted} from docker, but the pod has {_listed(usable)}; set request_gpus in the submit "
            "file, so that HTCondor finds a slot with GPUs (docker option --gpus)"
        )


def _is_available(requested: str, usable: Sequence[Device]) -> bool:
    """Return whether an id, an index, or a CDI name means GPUs of the pod."""
    if qualified := _CDI.fullmatch(requested):
        is_nvidia = qualified["vendor"] == "nvidia.com" or qualified["vendor"].endswith(".nvidia.com")
        return is_nvidia and (bool(usable) if qualified["name"] == "all" else _is_available(qualified["name"], usable))
    if requested.isdecimal():
        return int(requested) < len(usable)
    return any(requested in (device.uuid, device.uuid.removeprefix("GPU-"), short(device.uuid)) for device in usable)


def _listed(usable: Sequence[Device]) -> str:
    return ", ".join(device.uuid for device in usable) or "none"


def visible(environment: Iterable[str], wanted: int | None) -> Iterator[str]:
    """Yield a job's environment with as many of the slot's GPUs as the job requested.

    The slot has all GPUs of the pod and runs one job, so HTCondor lists all of them for each job.

    Args:
        environment: variables as NAME=VALUE.
        wanted: number of GPUs that the job requested; None if unknown.
    """
    for variable in environment:
        match = _ASSIGNED.fullmatch(variable) if wanted is not None else None
        if match is None or not match["ids"].startswith(("GPU-", "MIG-")):
            yield variable
        else:
            ids = match["ids"].split(",")[:wanted]
            yield f"{match['name']}={','.join(ids) or _NONE[match['name']]}"
