"""What the pod's status says of a container, read from the JSON of the core/v1 Pod."""

from dataclasses import dataclass
from typing import Any, Final

IMAGE_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Reasons of a waiting container whose image cannot be had (pkg/kubelet/images/types.go)."""

START_REASONS: Final = frozenset(
    {"CreateContainerError", "CreateContainerConfigError", "RunContainerError", "PostStartHookError"}
)
"""Reasons of a waiting container that cannot be started (pkg/kubelet/kuberuntime/kuberuntime_container.go)."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container of the pod: what is asked for and what is so."""

    wanted: str
    """The image in the pod's spec."""
    image: str = ""
    """The reference that the kubelet reports for the container of `container_id`."""
    image_id: str = ""
    container_id: str = ""
    """As the runtime names it, `containerd://<hex>`; empty before the first start."""
    running: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    ended: dict[str, Any] | None = None
    """`state.terminated`, or `lastState.terminated` when the container has not ended for good."""
    restarts: int = 0
    volumes: frozenset[str] = frozenset()
    """Where it has volumes mounted."""

    @property
    def refused(self) -> str | None:
        """Why the kubelet cannot start this container, in the runtime's words; None when nothing says so."""
        if self.waiting_reason in IMAGE_REASONS | START_REASONS:
            return f"{self.waiting_reason}: {self.waiting_message}" if self.waiting_message else self.waiting_reason
        return None


def container(pod: dict[str, Any], name: str) -> ContainerView | None:
    """Container `name` of `pod` (a regular one or a native sidecar), or None if the pod has none such."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    specs = [*spec.get("initContainers", []), *spec.get("containers", [])]
    asked = next((one for one in specs if one["name"] == name), None)
    if asked is None:
        return None
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    found: dict[str, Any] = next((one for one in statuses if one["name"] == name), {})
    state = found.get("state", {})
    waiting = state.get("waiting", {})
    return ContainerView(
        wanted=asked.get("image", ""),
        image=found.get("image", ""),
        image_id=found.get("imageID", ""),
        container_id=found.get("containerID", ""),
        running="running" in state,
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        ended=state.get("terminated") or found.get("lastState", {}).get("terminated"),
        restarts=found.get("restartCount", 0),
        volumes=frozenset(mount["mountPath"] for mount in asked.get("volumeMounts", [])),
    )
