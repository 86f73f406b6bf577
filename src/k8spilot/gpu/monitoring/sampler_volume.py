"""The volume with the sampler's socket, and the containers of the pod's specification that mount it; pure."""

from pathlib import Path
from typing import Any, Final

SIDECAR: Final = "gpu-metrics"
"""Name of the container that measures the GPUs in pods whose manifest has one (components/gpu-dra-metrics).

Several containers of a pod can have one ResourceClaim. The devices of a device plugin are for one container, so that
the engine adds an ephemeral container there (metrics_container.py).
"""

Json = dict[str, Any]


def volume_at(pod: Json, folder: Path, payload: str) -> str | None:
    """Return the name of the volume that the pilot mounts at `folder`; `payload` is another container."""
    mounts = [mount for container in _containers(pod) if container["name"] != payload for mount in _mounts(container)]
    return next((str(mount["name"]) for mount in mounts if mount["mountPath"] == str(folder)), None)


def holders(pod: Json, volume: str) -> list[str]:
    """Return the names of the containers that mount a volume, without ephemeral containers."""
    return [one["name"] for one in _containers(pod) if any(mount["name"] == volume for mount in _mounts(one))]


def _containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _mounts(container: Json) -> list[Json]:
    return list(container.get("volumeMounts") or ())
