"""The cluster, as far as the API server tells: reach, clock, rights, and the own pod."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import psutil

from k8spilot.common.errors import ClusterError, PreflightError
from k8spilot.condor.node_images import ATTRIBUTE as NODE_IMAGES
from k8spilot.condor.node_images import listed
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.kube.node import image_names, read_node
from k8spilot.kube.pod import container
from k8spilot.preflight.finding import Finding, fault, good, judged, warning
from k8spilot.preflight.pod_spec import group_warnings, shape_faults, shape_warnings
from k8spilot.preflight.rights import rights_findings
from k8spilot.settings import PILOT, Settings

CLOCK_SECONDS: Final = 300
"""Tokens of Kubernetes and of HTCondor are judged by the clock; five minutes are what Kerberos and others allow."""

_SECONDS: Final = 20.0

Json = dict[str, Any]


@dataclass
class Cluster:
    """What was seen of the cluster; empty as long as nothing was."""

    pod: Json = field(default_factory=dict)
    """The own pod."""
    version: str = ""
    """Of the API server, `v1.36.3`."""
    node: Json = field(default_factory=dict)
    """The pod's node, if it may be read."""
    beyond: str = ""
    """What the pod's token may do that a pilot does not need: a sentence, or nothing."""

    def attributes(self) -> dict[str, str]:
        """What the slot's ad tells of it: names and texts."""
        info = self.node.get("status", {}).get("nodeInfo", {})
        view = container(self.pod, PILOT)
        runtime = info.get("containerRuntimeVersion") or (view.container_id.partition("://")[0] if view else "")
        return {
            "K8SVersion": self.version,
            "K8SKubeletVersion": info.get("kubeletVersion", ""),
            "K8SContainerRuntime": runtime,
            NODE_IMAGES: listed(image_names(self.node)),
        }


async def cluster_findings(settings: Settings, api: Api, seen: Cluster) -> list[Finding]:
    """Ask the API server; `seen` gets what it says."""
    try:
        async with asyncio.timeout(_SECONDS):
            findings = [await _reach(settings, api, seen)]
            findings += await _own_pod(settings, api, seen)
            rights, seen.beyond = await rights_findings(settings, api)
            findings += rights
            with suppress(ApiRefusal):  # what it tells is good to have, and no more
                seen.node = await read_node(api, settings.node_name) or {}
    except ApiRefusal as error:
        return [_refusal(error)]
    except (ClusterError, PreflightError, OSError) as error:  # a TimeoutError is an OSError
        words = str(error) or f"it did not answer within {_SECONDS:.0f} s"
        return [fault("API", f"{words}; the network policies must let the pod connect to the Kubernetes API")]
    return findings


def _refusal(error: ApiRefusal) -> Finding:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return fault(
            "API",
            "the Kubernetes API does not accept the pod's token; mount a projected serviceAccountToken of the pod's "
            "own service account at /var/run/secrets/kubernetes.io/serviceaccount",
        )
    return fault("API", f"the Kubernetes API refuses the pilot ({error.status} {error})")


async def _reach(settings: Settings, api: Api, seen: Cluster) -> Finding:
    """Ask for the version, which every account may (system:public-info-viewer), and see what time it is there."""
    try:
        async with api.open("get", "/version") as response:
            here = time.time()
            seen.version = str(json.loads(await response.read()).get("gitVersion", ""))
            date = response.headers.get("Date", "")
    except ApiRefusal as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return good("API", "it answers; what version it has, and what time it is there, the pilot may not know")
    try:
        off = here - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        off = 0.0
    if abs(off) > CLOCK_SECONDS:
        return fault(
            "clock",
            f"the node's clock is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the API server's, so that "
            "tokens would be refused; have the node's time set right",
        )
    return good("API", f"Kubernetes {seen.version} answers, and its clock agrees within {abs(off) + 1:.0f} s")


async def _own_pod(settings: Settings, api: Api, seen: Cluster) -> list[Finding]:
    name = f"{settings.pod_namespace}/{settings.pod_name}"
    try:
        seen.pod = await api.read("get", f"/api/v1/namespaces/{settings.pod_namespace}/pods/{settings.pod_name}")
    except ApiRefusal as error:
        if error.status == HTTPStatus.NOT_FOUND:
            words = (
                f"there is no pod {name}; POD_NAME and POD_NAMESPACE must come from metadata.name and "
                "metadata.namespace by the downward API"
            )
        elif error.status == HTTPStatus.FORBIDDEN:
            return []  # a matter of the rights, which are told
        else:
            words = f"the pod {name} cannot be read: {error}"
        return [fault("pod", words)]
    shape = list(shape_faults(seen.pod, settings))
    warnings = [*shape_warnings(seen.pod, settings), *group_warnings(seen.pod, seen.version)]
    return [
        *judged("pod", (f"in the pod {name}, {words}" for words in shape), f"{name} is put together right"),
        *(warning("pod", f"in the pod {name}, {words}") for words in warnings),
        *_processes(seen.pod, settings),
    ]


def _processes(pod: Json, settings: Settings) -> Iterator[Finding]:
    """See whether the payload's processes can be seen, while there are any."""
    view = container(pod, settings.payload_container)
    if view is None or not view.running or not pod.get("spec", {}).get("shareProcessNamespace"):
        return
    if settings.payload_uid in _uids():
        yield good("processes", f"those of container {settings.payload_container} can be seen")
    else:
        yield fault(
            "processes",
            f"no process of container {settings.payload_container} can be seen here, so that no job could be measured "
            "or cleaned up after; use a container runtime that shares the process namespace between a pod's containers",
        )


def _uids() -> set[int]:
    """The users of all processes that can be seen."""
    return {one.info["uids"].real for one in psutil.process_iter(["uids"]) if one.info["uids"] is not None}
