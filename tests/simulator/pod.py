"""The pilot's pod as the API server has it, made from the project's own manifest."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Final

import yaml

from k8spilot.cli.slots import make_partitionable, multiply
from k8spilot.settings import SlotSettings
from k8spilot.settings.slots import BIND
from tests.simulator.images import REGISTRY, LocalImage
from tests.simulator.programs import CHECKOUT

NAMESPACE: Final = "pilots"
NAME: Final = "pilot"
PAYLOAD: Final = "payload"
CLAIM: Final = "pilot-gpu-x7f2k"
"""Name of the ResourceClaim that Kubernetes makes for the pod."""


def pilot_pod(
    idle: LocalImage,
    slots: Sequence[SlotSettings],
    limits: Mapping[str, str] | None = None,
    *,
    read_only: bool = False,
) -> dict[str, Any]:
    """The pod after its start: `install` has ended, `payload` is about to run the idle image, `pilot` runs."""
    pod = deepcopy(_manifest())
    if len(slots) > 1:
        payload = next(one for one in pod["spec"]["initContainers"] if one["name"] == PAYLOAD)
        payload["resources"]["limits"]["cpu"] = payload["resources"]["requests"]["cpu"] = str(len(slots))
        multiply(pod["spec"], len(slots))
        make_partitionable(pod["spec"], len(slots))
    uids = {slot.container: slot.uid for slot in slots}
    pod["metadata"] |= {"name": NAME, "namespace": NAMESPACE, "uid": "6f1f7e53-0000-4000-8000-000000000000"}
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        container["image"] = idle.reference
        if (uid := uids.get(container["name"])) is not None:
            container["securityContext"] |= {
                "runAsUser": uid,
                "runAsGroup": uid,
                "readOnlyRootFilesystem": read_only,
            }
            container["resources"]["limits"] |= limits or {}
    pod["status"] = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "initContainerStatuses": [
            {"name": "install", "image": idle.reference, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            *(
                {"name": name, "image": idle.reference, "imageID": "", "restartCount": 0, "state": {"waiting": {}}}
                for name in uids
            ),
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


def claiming(pod: dict[str, Any]) -> None:
    """Give the payload container a claim, as the component gpu-dra and Kubernetes do."""
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "k8spilot-gpu"}]
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": CLAIM}]
    payload = next(one for one in pod["spec"]["initContainers"] if one["name"] == PAYLOAD)
    payload["resources"]["claims"] = [{"name": "gpu"}]


def payload_image(pod: dict[str, Any], name: str = PAYLOAD) -> str:
    """The image that the spec asks for."""
    return next(str(one["image"]) for one in pod["spec"]["initContainers"] if one["name"] == name)


def payload_resources(pod: dict[str, Any], name: str = PAYLOAD) -> dict[str, Any]:
    """Requests and limits that the spec asks for; a copy."""
    return next(deepcopy(one["resources"]) for one in pod["spec"]["initContainers"] if one["name"] == name)


def payload_bind(pod: dict[str, Any], annotation: str = BIND) -> str:
    """Return the value of the manifest's variable K8SPILOT_BIND, which comes by the downward API."""
    return str((pod["metadata"].get("annotations") or {}).get(annotation, ""))


def payload_status(pod: dict[str, Any], name: str = PAYLOAD) -> dict[str, Any]:
    """The payload container's status; a part of `pod`."""
    status: dict[str, Any] = next(one for one in pod["status"]["initContainerStatuses"] if one["name"] == name)
    return status
