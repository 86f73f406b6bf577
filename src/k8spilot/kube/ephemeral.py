"""Ephemeral containers of the own pod: they can be added, and neither changed, started again nor removed."""

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
    """The pilot's service account may not add any."""


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """One of them: what the pod's spec has, and what its status says."""

    name: str
    environment: Mapping[str, str]
    running: bool = False
    status: int | None = None
    """Its exit status, once it has ended: for good."""
    reason: str = ""
    """Why it waits, or how it ended: one word of the kubelet's or the runtime's."""
    message: str = ""

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return self.status is not None

    @property
    def words(self) -> str:
        """Reason, exit status and message, as far as there are any."""
        code = f"exit status {self.status}" if self.status else ""
        return ": ".join(part for part in (self.reason, code, " ".join(self.message.split())[:300]) if part)


def ephemerals(pod: dict[str, Any], prefix: str) -> list[Ephemeral]:
    """Those of a pod whose names begin with `prefix`, in the order in which they were added."""
    statuses = {one["name"]: one for one in pod.get("status", {}).get("ephemeralContainerStatuses", [])}
    specs = pod.get("spec", {}).get("ephemeralContainers", [])
    return [_view(one, statuses.get(one["name"], {})) for one in specs if one["name"].startswith(prefix)]


def _view(spec: dict[str, Any], status: dict[str, Any]) -> Ephemeral:
    state = status.get("state", {})
    words = state.get("waiting") or state.get("terminated") or {}
    return Ephemeral(
        name=spec["name"],
        environment={one["name"]: one.get("value", "") for one in spec.get("env", [])},
        running="running" in state,
        status=state["terminated"].get("exitCode", 0) if "terminated" in state else None,
        reason=words.get("reason", ""),
        message=words.get("message", ""),
    )


async def add(pod: OwnPod, container: dict[str, Any]) -> None:
    """Add one. A name that is there already is an error: so no two of the pilot's own add the same.

    Raises:
        Forbidden: the service account has no right to.
        ClusterRefused: a policy or the API server's own validation is against it.
        ClusterError: it could not be asked.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/ephemeralcontainers"
    # By a strategic merge, lists are merged by name; the uid makes it fail for a pod of the same name.
    body = {"metadata": {"uid": pod.uid}, "spec": {"ephemeralContainers": [container]}}
    try:
        await pod.api.read("patch", path, body=body, patch="strategic-merge-patch")
    except ApiRefusal as error:
        if error.status not in _DEFINITE or NOT_READY.search(str(error)):
            raise
        if error.status == HTTPStatus.FORBIDDEN and 'resource "pods/ephemeralcontainers"' in str(error):
            raise Forbidden(str(error)) from error
        raise ClusterRefused(str(error)) from error
