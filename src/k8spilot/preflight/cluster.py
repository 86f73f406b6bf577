"""Checks that ask the API server: connection, clock, rights, and the own pod."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError, PreflightError
from k8spilot.common.proc import processes
from k8spilot.condor.ads.node_images import ATTRIBUTE as NODE_IMAGES
from k8spilot.condor.ads.node_images import listed
from k8spilot.gpu.discovery.claims import Claims, object_names, read_claims, shared_words
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.kube.node import image_names, read_node
from k8spilot.kube.pod import container
from k8spilot.preflight.finding import Finding, fault, good, judged, warning
from k8spilot.preflight.pod_spec import group_warnings, shape_faults, shape_warnings
from k8spilot.preflight.rights import rights_findings
from k8spilot.settings import PILOT, Settings, SlotSettings

CLOCK_SECONDS: Final = 300
"""Largest accepted clock difference in seconds. Tokens of Kubernetes and HTCondor depend on the clock; Kerberos and
others accept five minutes."""

_API_SECONDS: Final = 20.0
_RELIST_SINCE: Final = 36
"""Minor version of Kubernetes in which the feature gate PLEGOnDemandRelist is on by default."""
_VISIBLE_SECONDS: Final = 5.0
"""Time limit for a process of the payload container. The pod's status shows a container's end a second late."""
_POLL_SECONDS: Final = 0.25

Json = dict[str, Any]


@dataclass
class Cluster:
    """Facts of the cluster; empty until the checks have read them."""

    pod: Json = field(default_factory=dict)
    """The own pod, as JSON."""
    version: str = ""
    """Version of the API server, `v1.36.3`."""
    node: Json = field(default_factory=dict)
    """The pod's node, if the pilot may read it."""
    beyond: str = ""
    """Excess rights of the pod's token: a sentence, or an empty string."""
    why_equal: str = ""
    """Why the slots are of equal size although the manifest asks for a partitionable slot; else an empty string."""

    def attributes(self) -> dict[str, str]:
        """Return the cluster's attributes for the slot's ad: names and texts."""
        info = self.node.get("status", {}).get("nodeInfo", {})
        view = container(self.pod, PILOT)
        runtime = info.get("containerRuntimeVersion") or (view.container_id.partition("://")[0] if view else "")
        return {
            "K8SVersion": self.version,
            "K8SKubeletVersion": info.get("kubeletVersion", ""),
            "K8SContainerRuntime": runtime,
            NODE_IMAGES: listed(image_names(self.node)),
        }


async def cluster_findings(settings: Settings, api: Api, facts: Cluster) -> list[Finding]:
    """Ask the API server. `facts` receives its answers."""
    try:
        async with asyncio.timeout(_API_SECONDS):
            findings = [await _reach(settings, api, facts)]
            findings += await _own_pod(settings, api, facts)
            rights, facts.beyond = await rights_findings(settings, api)
            findings += rights
            with suppress(ApiRefusal):  # the node's facts are optional
                facts.node = await read_node(api, settings.node_name) or {}
    except ApiRefusal as error:
        return [_refusal(error)]
    except (ClusterError, PreflightError, OSError) as error:  # a TimeoutError is an OSError
        message = str(error) or f"it did not answer within {_API_SECONDS:.0f} s"
        return [fault("API", f"{message}; let the network policies allow the pod to connect to the Kubernetes API")]
    return findings


def _refusal(error: ApiRefusal) -> Finding:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return fault(
            "API",
            "the Kubernetes API does not accept the pod's token; mount a projected serviceAccountToken of the pod's "
            "own service account at /var/run/secrets/kubernetes.io/serviceaccount",
        )
    return fault("API", f"the Kubernetes API refuses the pilot ({error.status} {error})")


async def _reach(settings: Settings, api: Api, facts: Cluster) -> Finding:
    """Read the version, which every account may (system:public-info-viewer), and compare the clocks."""
    try:
        async with api.open("get", "/version") as response:
            now = time.time()
            facts.version = str(json.loads(await response.read()).get("gitVersion", ""))
            date = response.headers.get("Date", "")
    except ApiRefusal as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return good("API", "it answers, but does not let the pilot read its version and time")
    try:
        off = now - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        off = 0.0
    if abs(off) > CLOCK_SECONDS:
        return fault(
            "clock",
            f"the node's clock is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the API server's, so that "
            "tokens would be refused; synchronize the node's clock",
        )
    return good("API", f"Kubernetes {facts.version} answers, and its clock agrees within {abs(off) + 1:.0f} s")


async def _own_pod(settings: Settings, api: Api, facts: Cluster) -> list[Finding]:
    name = f"{settings.pod_namespace}/{settings.pod_name}"
    try:
        facts.pod = await _read_pod(settings, api)
    except ApiRefusal as error:
        if error.status == HTTPStatus.NOT_FOUND:
            message = (
                f"there is no pod {name}; POD_NAME and POD_NAMESPACE must come from metadata.name and "
                "metadata.namespace by the downward API"
            )
        elif error.status == HTTPStatus.FORBIDDEN:
            return []  # reported by the check of the rights
        else:
            message = f"the pod {name} cannot be read: {error}"
        return [fault("pod", message)]
    claims = await read_claims(api, facts.pod)
    faults = list(shape_faults(facts.pod, settings, claims))
    warnings = [
        *shape_warnings(facts.pod, settings, claims),
        *claim_warnings(settings, facts.pod, claims),
        *group_warnings(facts.pod, facts.version),
        *image_warnings(facts.pod),
        *relist_warnings(settings, facts.version),
    ]
    return [
        *judged("pod", (f"in the pod {name}, {message}" for message in faults), f"{name} has what a pilot needs"),
        *(warning("pod", f"in the pod {name}, {message}") for message in warnings),
        *[finding for slot in settings.slots for finding in await _processes(settings, slot, api, facts.pod)],
    ]


def relist_warnings(settings: Settings, version: str) -> Iterator[str]:
    """Yield a warning if kubelets of this cluster (`version`, as v1.36.3) do not look at a pod when it is resized."""
    match = re.match(r"v1\.(\d+)", version)
    if settings.relist and match is not None and int(match[1]) < _RELIST_SINCE:
        yield f"K8SPILOT_RELIST has no effect on a kubelet before 1.{_RELIST_SINCE}; remove the component relist"


def image_warnings(pod: Json) -> Iterator[str]:
    """Yield a warning if the pilot's image is on the node without a digest: then no reference to it is ever new.

    A reference that a container has used before has to wait for the kubelet's back-off (payload/binding/idle_image.py).
    """
    view = container(pod, PILOT)
    if view is not None and view.image_id and "@" not in view.image_id and "@" not in view.wanted:
        yield (
            f"the image {view.wanted} has no digest on the node, so that it was loaded by hand (`ctr images import`, "
            "`kind load`); after each job that ends its container, such as one that runs out of memory, the slot waits "
            "20 s or longer for the kubelet's back-off; push the image to a registry, and let the node pull it, or, "
            "with containerd, give it a name with its digest there "
            "(`ctr --namespace k8s.io images tag NAME REPOSITORY@DIGEST`)"
        )


def claim_warnings(settings: Settings, pod: Json, claims: Claims) -> Iterator[str]:
    """Yield a warning for claims that the pilot cannot read, and for claims of several pods."""
    if unread := sorted(object_names(pod).keys() - claims.keys()):
        yield (
            f"the ResourceClaim {', '.join(unread)} cannot be read, so that its devices are not compared with the GPUs "
            f"that the payload container sees; let the service account get resourceclaims in the namespace "
            f"{settings.pod_namespace}, as the component gpu-dra does"
        )
    yield from shared_words(claims)


async def _read_pod(settings: Settings, api: Api) -> Json:
    return await api.read("get", f"/api/v1/namespaces/{settings.pod_namespace}/pods/{settings.pod_name}")


async def _processes(settings: Settings, slot: SlotSettings, api: Api, pod: Json) -> list[Finding]:
    """Check whether the payload's processes are visible, while the pod's status shows its container running."""
    if not pod.get("spec", {}).get("shareProcessNamespace"):
        return []
    name, until = slot.container, time.monotonic() + _VISIBLE_SECONDS
    while (view := container(pod, name)) is not None and view.running:
        if slot.uid in _uids():
            return [good("processes", f"processes of the container {name} are visible")]
        if time.monotonic() > until:
            return [
                fault(
                    "processes",
                    f"no process of the container {name} is visible here, so that the pilot could not measure jobs or "
                    "clean up after them; use a container runtime that shares the process namespace between a pod's "
                    "containers",
                )
            ]
        await asyncio.sleep(_POLL_SECONDS)
        pod = await _read_pod(settings, api)
    return []


def _uids() -> set[int]:
    """Return the user IDs of all visible processes."""
    return {one.uids[0] for one in processes()}
