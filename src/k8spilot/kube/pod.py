"""A container in the pod's spec and status, from the JSON of the core/v1 Pod."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
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
"""Reasons of a waiting container whose image is not available (pkg/kubelet/images/types.go)."""

START_REASONS: Final = frozenset(
    {"CreateContainerError", "CreateContainerConfigError", "RunContainerError", "PostStartHookError"}
)
"""Reasons of a waiting container that cannot be started (pkg/kubelet/kuberuntime/kuberuntime_container.go)."""


DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of the pod, an integer: a ReplicaSet that is scaled down deletes the pods with the lowest cost first. The
values here are all that components/own-pod admits."""
BUSY_COST: Final = "100"
IDLE_COST: Final = "0"
WAITING_COSTS: Final = ("-1", "-2")
"""Costs of a pod that waits for credentials, in turn."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container of the pod: desired and actual state."""

    wanted: str
    """Image in the pod's spec."""
    image: str = ""
    """Reference that the kubelet reports for the container `container_id`."""
    image_id: str = ""
    container_id: str = ""
    """The runtime's id, `containerd://<hex>`; empty before the first start."""
    running: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    ended: dict[str, Any] | None = None
    """`state.terminated`, or `lastState.terminated` if the container was restarted."""
    restarts: int = 0
    volumes: frozenset[str] = frozenset()
    """Mount paths of its volumes."""
    is_read_only: bool = False
    """Whether its root file system is read-only."""

    @property
    def refused(self) -> str | None:
        """The runtime's reason why the kubelet cannot start this container; None without one."""
        if self.waiting_reason in IMAGE_REASONS | START_REASONS:
            return f"{self.waiting_reason}: {self.waiting_message}" if self.waiting_message else self.waiting_reason
        return None


def runtime(pod: dict[str, Any]) -> str:
    """Return the name of the node's container runtime, such as `containerd`; empty before a container starts."""
    status = pod.get("status") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found = (str(one.get("containerID") or "").partition("://") for one in statuses)
    return next((name for name, separator, _ in found if separator), "")


def container(pod: dict[str, Any], name: str) -> ContainerView | None:
    """Return the container `name` of `pod` (a regular one or a native sidecar); None if the pod has no such."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    specs = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    spec_part = next((item for item in specs if item["name"] == name), None)
    if spec_part is None:
        return None
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    status_part: dict[str, Any] = next((item for item in statuses if item["name"] == name), {})
    state = status_part.get("state") or {}
    waiting = state.get("waiting") or {}
    return ContainerView(
        wanted=spec_part.get("image", ""),
        image=status_part.get("image", ""),
        image_id=status_part.get("imageID", ""),
        container_id=status_part.get("containerID", ""),
        running="running" in state,
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        ended=state.get("terminated") or (status_part.get("lastState") or {}).get("terminated"),
        restarts=status_part.get("restartCount", 0),
        volumes=frozenset(mount["mountPath"] for mount in spec_part.get("volumeMounts") or ()),
        is_read_only=bool((spec_part.get("securityContext") or {}).get("readOnlyRootFilesystem")),
    )


def is_disturbed(pod: dict[str, Any]) -> bool:
    """Return whether the cluster ends the pod or a part of it: a deletion, an eviction, a preemption, a lost node."""
    status = pod.get("status") or {}
    return (
        is_deleted(pod)
        or bool(status.get("reason"))
        or status.get("phase") in ("Failed", "Succeeded")
        or disruption(pod) is not None
    )


def is_deleted(pod: dict[str, Any]) -> bool:
    """Return whether the pod's deletion has begun."""
    return "deletionTimestamp" in (pod.get("metadata") or {})


def disruption(pod: dict[str, Any]) -> dict[str, Any] | None:
    """Return the condition DisruptionTarget, which has the cause of an eviction or a preemption; None without one."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    found = (one for one in conditions if one.get("type") == "DisruptionTarget" and one.get("status") == "True")
    return next(found, None)


def same_volumes(pod: dict[str, Any], name: str, paths: Iterable[str]) -> list[str]:
    """Return the paths at which container `name` mounts the volumes that other containers mount at `paths`."""
    wanted = set(paths)
    containers = [*pod.get("spec", {}).get("initContainers", []), *pod.get("spec", {}).get("containers", [])]
    mounts = {item["name"]: item.get("volumeMounts", []) for item in containers}
    volumes = {
        mount["name"]
        for other, other_mounts in mounts.items()
        if other != name
        for mount in other_mounts
        if mount["mountPath"] in wanted
    }
    return [mount["mountPath"] for mount in mounts.get(name, []) if mount["name"] in volumes]


def addresses(pod: dict[str, Any]) -> tuple[str, ...]:
    """Return the addresses of a pod (PodStatus.podIPs) from its JSON; empty before it has any."""
    return tuple(item["ip"] for item in pod.get("status", {}).get("podIPs") or ())


def security_context(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Return the security context of a container in a pod's `spec`, with the pod's values as defaults."""
    return {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}


def groups_of(pod: dict[str, Any], name: str) -> frozenset[int]:
    """Return the groups that `pod` requests for its container `name`."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    security = security_context(next((item for item in containers if item["name"] == name), {}), spec)
    groups = (*security.get("supplementalGroups", ()), security.get("fsGroup"), security.get("runAsGroup"))
    return frozenset(group for group in groups if group is not None)


def sidecar_of(pod: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    """Return the place of the native sidecar `name` in a pod (a JSON pointer), and its specification.

    Raises:
        ClusterError: the pod has no such sidecar.
    """
    for number, item in enumerate(pod["spec"].get("initContainers", [])):
        if item["name"] == name:
            return f"/spec/initContainers/{number}", item
    raise ClusterError(f"the pod has no native sidecar {name}; its manifest is not k8spilot's")


def image_of(pod: dict[str, Any], name: str) -> tuple[str, str]:
    """Return the place of the native sidecar `name`'s image in a pod (a JSON pointer), and the image.

    Raises:
        ClusterError: the pod has no such sidecar.
    """
    place, sidecar = sidecar_of(pod, name)
    return f"{place}/image", str(sidecar["image"])


def set_bind_operations(annotation: str, bind: str, *, is_first: bool) -> dict[str, Any]:
    """Return the operation that names a change of image, in the same patch (JSON Patch, RFC 6902).

    The kubelet creates a container from one state of the pod, for its image as well as its variables (kuberuntime's
    generateContainerConfig): the payload container gets the name of its change through the downward API.
    """
    if is_first:  # the pod has no annotations
        return {"op": "add", "path": "/metadata/annotations", "value": {annotation: bind}}
    return {"op": "add", "path": f"/metadata/annotations/{annotation.replace('/', '~1')}", "value": bind}


def bind_of(pod: dict[str, Any], annotation: str) -> str:
    """Return the name of the last change, which an annotation has; empty without one."""
    return str((pod["metadata"].get("annotations") or {}).get(annotation, ""))


def deletion_cost_operations(pod: dict[str, Any], cost: str) -> list[dict[str, Any]]:
    """Return the operation that sets the deletion cost, after that of `set_bind_operations`.

    A Job ignores the annotation (job_controller.go sorts by ActivePods), and a pod without a controller has no use for
    it: they get none.
    """
    metadata = pod["metadata"]
    kinds = {owner.get("kind") for owner in metadata.get("ownerReferences") or () if owner.get("controller")}
    if not kinds - {"Job"} or (metadata.get("annotations") or {}).get(DELETION_COST) == cost:
        return []
    path = f"/metadata/annotations/{DELETION_COST.replace('/', '~1')}"
    return [{"op": "add", "path": path, "value": cost}]


def clear_managed_fields_operations(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the operation that clears a pod's managedFields: the API server then keeps none for later changes.

    A patch takes half the time then, and the pod is a third smaller. A server-side apply of the pod restores them, and
    the next change clears them again (skipNonAppliedManager in apimachinery's util/managedfields; documentation of
    server-side apply, "Clearing managedFields").
    """
    if not pod["metadata"].get("managedFields"):
        return []
    return [{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]


def start_of_life(pod: dict[str, Any]) -> str:
    """Return the time from which a pilot's life counts (RFC 3339): the pod's start, or now if the kubelet restarts it.

    A pilot of a pod with restartPolicy OnFailure that crashed goes on with its life. With Always, which a Deployment
    needs, a pilot that has come to its end starts again: it would end at once if it had no new life.
    """
    if pod.get("spec", {}).get("restartPolicy", "Always") == "Always":
        return datetime.now(UTC).isoformat(timespec="seconds")
    return str(pod["status"]["startTime"])


def version_of(pod: dict[str, Any]) -> int:
    """Return its resource version, which is a growing number (API conventions, since Kubernetes 1.35)."""
    return int(pod["metadata"]["resourceVersion"])
