"""What the pod's status says of a container, read from the JSON of the core/v1 Pod."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common.errors import ClusterError

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


BIND: Final = "k8spilot/bind"
"""Annotation of the pod: the name of the last change of the payload container's image."""


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
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    specs = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    asked = next((one for one in specs if one["name"] == name), None)
    if asked is None:
        return None
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found: dict[str, Any] = next((one for one in statuses if one["name"] == name), {})
    state = found.get("state") or {}
    waiting = state.get("waiting") or {}
    return ContainerView(
        wanted=asked.get("image", ""),
        image=found.get("image", ""),
        image_id=found.get("imageID", ""),
        container_id=found.get("containerID", ""),
        running="running" in state,
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        ended=state.get("terminated") or (found.get("lastState") or {}).get("terminated"),
        restarts=found.get("restartCount", 0),
        volumes=frozenset(mount["mountPath"] for mount in asked.get("volumeMounts") or ()),
    )


def same_volumes(pod: dict[str, Any], name: str, paths: Iterable[str]) -> list[str]:
    """Where container `name` of `pod` has the volumes that others of its containers have at `paths`."""
    wanted = set(paths)
    containers = [*pod.get("spec", {}).get("initContainers", []), *pod.get("spec", {}).get("containers", [])]
    mounts = {one["name"]: one.get("volumeMounts", []) for one in containers}
    volumes = {
        mount["name"]
        for who, theirs in mounts.items()
        if who != name
        for mount in theirs
        if mount["mountPath"] in wanted
    }
    return [mount["mountPath"] for mount in mounts.get(name, []) if mount["name"] in volumes]


def addresses(pod: dict[str, Any]) -> tuple[str, ...]:
    """The addresses of a pod (PodStatus.podIPs), in its JSON; none before it has any."""
    return tuple(one["ip"] for one in pod.get("status", {}).get("podIPs") or ())


def security_context(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """The security context of a container in the JSON of a pod's `spec`: what it does not say, the pod does."""
    return {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}


def groups_of(pod: dict[str, Any], name: str) -> frozenset[int]:
    """The groups that `pod` asks for, for its container `name`."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    security = security_context(next((one for one in containers if one["name"] == name), {}), spec)
    found = (*security.get("supplementalGroups", ()), security.get("fsGroup"), security.get("runAsGroup"))
    return frozenset(one for one in found if one is not None)


def image_of(pod: dict[str, Any], name: str) -> tuple[str, str]:
    """Where the image of the native sidecar `name` is in a pod (a JSON pointer), and what it is.

    Raises:
        ClusterError: the pod has none such.
    """
    for number, one in enumerate(pod["spec"].get("initContainers", [])):
        if one["name"] == name:
            return f"/spec/initContainers/{number}/image", str(one["image"])
    raise ClusterError(f"the pod has no native sidecar {name}; its manifest is not k8spilot's")


def set_bind_operations(pod: dict[str, Any], bind: str) -> dict[str, Any]:
    """What gives a change of image its name, in the same patch (JSON Patch, RFC 6902).

    The kubelet makes a container from one state of the pod, its image as well as its variables (kuberuntime's
    generateContainerConfig): the payload container learns by the downward API which change it was made for.
    """
    if not pod["metadata"].get("annotations"):
        return {"op": "add", "path": "/metadata/annotations", "value": {BIND: bind}}
    return {"op": "add", "path": f"/metadata/annotations/{BIND.replace('/', '~1')}", "value": bind}


def bind_of(pod: dict[str, Any]) -> str:
    """The name of the last change; empty if it has none."""
    return str((pod["metadata"].get("annotations") or {}).get(BIND, ""))


def clear_managed_fields_operations(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """What ends a pod's account of who manages which field: without one the API server keeps none of later changes.

    A patch takes half the time then, and the pod is a third smaller. Whoever applies the pod anew on the server's side
    begins another account, which the next change ends (skipNonAppliedManager in apimachinery's util/managedfields;
    documentation of server-side apply, "Clearing managedFields").
    """
    if not pod["metadata"].get("managedFields"):
        return []
    return [{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]


def version_of(pod: dict[str, Any]) -> int:
    """Its resource version, which is a number that grows (API conventions, since Kubernetes 1.35)."""
    return int(pod["metadata"]["resourceVersion"])
