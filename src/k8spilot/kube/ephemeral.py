"""Ephemeral containers of the own pod: they can be added, but not changed, restarted or removed."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from k8spilot.common.errors import ClusterRefused
from k8spilot.kube.client import ApiRefusal
from k8spilot.kube.own_pod import NOT_READY, OwnPod

_DEFINITE = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


class Forbidden(ClusterRefused):
    """Raised when the pilot's service account must not add ephemeral containers."""


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """An ephemeral container, from the pod's spec and status."""

    name: str
    environment: Mapping[str, str]
    running: bool = False
    status: int | None = None
    """Exit status after its end, which is final; None before."""
    reason: str = ""
    """Reason of its waiting or of its end: one word of the kubelet or the runtime."""
    message: str = ""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status is not None

    @property
    def summary(self) -> str:
        """Reason, exit status and message, if present."""
        code = f"exit status {self.status}" if self.status else ""
        return ": ".join(part for part in (self.reason, code, " ".join(self.message.split())[:300]) if part)


def ephemerals(pod: dict[str, Any], prefix: str) -> list[Ephemeral]:
    """Return a pod's ephemeral containers whose names begin with `prefix`, in the order of their addition."""
    statuses = {item["name"]: item for item in pod.get("status", {}).get("ephemeralContainerStatuses", [])}
    specs = pod.get("spec", {}).get("ephemeralContainers", [])
    return [_view(item, statuses.get(item["name"], {})) for item in specs if item["name"].startswith(prefix)]


def _view(spec: dict[str, Any], status: dict[str, Any]) -> Ephemeral:
    state = status.get("state", {})
    words = state.get("waiting") or state.get("terminated") or {}
    return Ephemeral(
        name=spec["name"],
        environment={variable["name"]: variable.get("value", "") for variable in spec.get("env", [])},
        running="running" in state,
        status=state["terminated"].get("exitCode", 0) if "terminated" in state else None,
        reason=words.get("reason", ""),
        message=words.get("message", ""),
    )


async def add(pod: OwnPod, container: dict[str, Any]) -> None:
    """Add an ephemeral container. An existing name is an error, so that the pilot does not add one twice.

    Raises:
        Forbidden: the service account does not have the right.
        ClusterRefused: a policy or the API server's own validation refuses it.
        ClusterError: the request failed.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/ephemeralcontainers"
    # A strategic merge patch merges lists by name. The uid makes it fail for another pod of the same name.
    body = {"metadata": {"uid": pod.uid}, "spec": {"ephemeralContainers": [container]}}
    try:
        await pod.api.read("patch", path, body=body, patch="strategic-merge-patch")
    except ApiRefusal as error:
        if error.status not in _DEFINITE or NOT_READY.search(str(error)):
            raise
        if error.status == HTTPStatus.FORBIDDEN and 'resource "pods/ephemeralcontainers"' in str(error):
            raise Forbidden(str(error)) from error
        raise ClusterRefused(str(error)) from error
