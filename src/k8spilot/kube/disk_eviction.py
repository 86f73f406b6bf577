"""Pods that the kubelet evicted for the disk that they used. The job that ran there would do that to another pod."""

import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.model.disk import LastRun

Json = Mapping[str, Any]

_OWN_LIMIT: Final = re.compile(
    r"Pod ephemeral local storage usage exceeds the total limit of containers"
    r"|Container (?P<container>\S+) exceeded its local ephemeral storage limit"
    r'|Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit'
)
"""The kubelet's words for a pod that has used more than its own limits (pkg/kubelet/eviction/helpers.go). It has others
for a node whose disk is full, for which the job may not be at fault."""
_SLACK_SECONDS: Final = 10
"""Difference between the clocks of the cluster and of the access point, and between an eviction and the pod's end. In
less time no other job can have begun there and have been measured by the kubelet."""
_STALE_SECONDS: Final = 130
"""Age that the kubelet's figure of a volume may have when the pod is evicted: it measures every one to two minutes
(pkg/kubelet/server/stats/volume_stat_calculator.go), and acts every ten seconds. The figure of a container is never
that of an earlier one."""


async def evicted_for_disk(api: Api, namespace: str, name: str, payload: str, run: LastRun) -> str:
    """Return the kubelet's words if the pod was evicted for the disk that its job used.

    Args:
        api: the API server.
        namespace: namespace of the pods.
        name: the pod in which the job ran last.
        payload: name of the payload container; those of several begin with it.
        run: that run of the job.

    Returns:
        The words; empty if the pod is unknown, was not evicted, or was evicted after the job had left it; also if an
        earlier job may have filled the volume, unless the job had already run elsewhere.

    Raises:
        ClusterError: the request failed.
    """
    try:
        pod = await api.read("get", f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ApiRefusal as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return ""
        raise
    return words_of(pod, payload, run)


def words_of(pod: Json, payload: str, run: LastRun) -> str:
    """Return the same for a pod as the API server has it."""
    status = pod.get("status", {})
    words = str(status.get("message", ""))
    match = _OWN_LIMIT.search(words)
    evicted = _evicted_at(status)
    if status.get("reason") != "Evicted" or match is None or evicted is None or run.vacated < evicted - _SLACK_SECONDS:
        return ""
    if match["container"] is None and run.is_first and (run.began is None or evicted - run.began < _STALE_SECONDS):
        return ""
    payloads = _payloads_of(pod, payload)
    if len(payloads) > 1:  # only the words about one container say which job was at fault
        number = re.search(r"\d+$", run.slot)
        return words if number is not None and match["container"] == f"{payload}-{number[0]}" else ""
    if match["container"] not in (None, payload):
        return ""
    return words if match["volume"] is None or match["volume"] in _volumes(pod, payload) else ""


def _evicted_at(status: Json) -> float | None:
    """Return the time of the pod's end in seconds since the epoch: a second or two after the eviction.

    The kubelet sets no condition DisruptionTarget for a pod that has exceeded its own limits (tried: Kubernetes 1.36).
    """
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ContainersReady" and condition.get("reason") == "PodFailed":
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return None


def _payloads_of(pod: Json, payload: str) -> list[str]:
    names = [item["name"] for item in pod["spec"].get("initContainers") or ()]
    return [name for name in names if re.fullmatch(rf"{re.escape(payload)}-\d+", name)] or [payload]


def _volumes(pod: Json, payload: str) -> set[str]:
    containers = [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]
    return {mount["name"] for item in containers if item["name"] == payload for mount in item.get("volumeMounts") or ()}
