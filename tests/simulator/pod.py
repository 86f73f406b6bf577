"""The pilot's pod as the API server has it, made from the project's own manifest."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Final

import yaml

from tests.simulator.images import REGISTRY, LocalImage
from tests.simulator.programs import CHECKOUT

NAMESPACE: Final = "pilots"
NAME: Final = "pilot"
PAYLOAD: Final = "payload"


def pilot_pod(idle: LocalImage, uid: int, limits: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The pod after its start: `install` has ended, `payload` is about to run the idle image, `pilot` runs."""
    pod = deepcopy(_manifest())
    pod["metadata"] |= {"name": NAME, "namespace": NAMESPACE, "uid": "6f1f7e53-0000-4000-8000-000000000000"}
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        container["image"] = idle.reference
        if container["name"] == PAYLOAD:
            container["securityContext"] |= {"runAsUser": uid, "runAsGroup": uid}
            container["resources"]["limits"] |= limits or {}
    pod["status"] = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "initContainerStatuses": [
            {"name": "install", "image": idle.reference, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            {"name": PAYLOAD, "image": idle.reference, "imageID": "", "restartCount": 0, "state": {"waiting": {}}},
        ],
        "containerStatuses": [
            {
                "name": "pilot",
                "image": idle.reference,
                "imageID": f"{REGISTRY}/k8spilot@{idle.digest}",
                "containerID": "containerd://" + "0" * 64,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }
    return pod


@cache
def _manifest() -> dict[str, Any]:
    """The manifest, read once: PyYAML takes 70 ms for it, a third of what the start of a simulated pod took."""
    (pod,) = yaml.safe_load_all((CHECKOUT / "manifests/pilot-pod.yaml").read_text())
    return dict(pod)


def payload_image(pod: dict[str, Any]) -> str:
    """The image that the spec asks for."""
    return next(str(one["image"]) for one in pod["spec"]["initContainers"] if one["name"] == PAYLOAD)


def payload_bind(pod: dict[str, Any]) -> str:
    """What the manifest's variable K8SPILOT_BIND is, by the downward API."""
    return str((pod["metadata"].get("annotations") or {}).get("k8spilot/bind", ""))


def payload_status(pod: dict[str, Any]) -> dict[str, Any]:
    """The payload container's status; a part of `pod`."""
    status: dict[str, Any] = next(one for one in pod["status"]["initContainerStatuses"] if one["name"] == PAYLOAD)
    return status
