"""Requests that the kubelet looks at the pod's containers at once (a *relist*), which it does once a second by itself.

After a change of the pod the kubelet begins the next one only with a newer look at the containers
(k8s.io/kubernetes, pkg/kubelet/pod_workers.go, podWorkerLoop: GetNewerThan). A resize makes it look at once
(pkg/kubelet/kubelet.go, HandlePodUpdates, and pkg/kubelet/allocation; feature gate PLEGOnDemandRelist, on by default
since Kubernetes 1.36). So the container's CPU changes by a thousandth of a CPU, to and fro.
"""

import asyncio
import logging
import math
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube import reflector
from k8spilot.kube.own_pod import OwnPod, Sidecar
from k8spilot.kube.pod import sidecar_of, version_of
from k8spilot.model.quantity import quantity

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_SYNC_SECONDS: Final = 1.3
"""Seconds after a container's start in which the kubelet may not have synchronized the pod: it does so each second."""
_BEGIN_SECONDS: Final = 0.15
"""Seconds for the kubelet to begin the change after a request. It needs less than a tenth of that on an idle node."""
_REQUESTS: Final = 3
"""Requests for one change. A sync that still waits in the pod's worker takes the first relist, and changes nothing."""
_TRIES: Final = 3
"""Changes in a row for which a request failed, after which there are no more requests."""


def why_not(container: Json) -> str:
    """Return why the CPU of a container cannot be changed without effect on its jobs; empty if it can.

    Args:
        container: the container in the pod's specification.
    """
    if _cpu(container, "limits") is None and _cpu(container, "requests") is None:
        return f"the container {container['name']} has no limit and no request of cpu"
    limit, request = _cpu(container, "limits"), _cpu(container, "requests")
    if limit is not None and request is not None and 0 < limit - request <= 2:
        return f"limit and request of cpu of the container {container['name']} are not equal, but nearly so"
    policies = {one.get("resourceName"): one.get("restartPolicy") for one in container.get("resizePolicy") or ()}
    if policies.get("cpu", "NotRequired") != "NotRequired":
        return f"the resizePolicy of the container {container['name']} restarts it when its cpu changes"
    return ""


def operations(pod: Json, name: str) -> list[Json]:
    """Return the JSON patch of a resize by a thousandth of a CPU.

    An even number of thousandths goes down by one, and an odd one goes up by one. So two resizes restore the manifest's
    value if that is even, and the CPU never exceeds it. A request that equals its limit stays equal, since the pod's
    QoS class must not change.

    Args:
        pod: the pod as it was last seen. A late change, which finds other values, has no effect.
        name: the container.
    """
    place, found = sidecar_of(pod, name)
    limit, request = _cpu(found, "limits"), _cpu(found, "requests")
    kinds = ["limits"] if request is None or (limit is not None and request < limit) else ["requests"]
    if limit is not None and limit == request:
        kinds = ["limits", "requests"]
    changes: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]}]
    for kind in kinds:
        path, now = f"{place}/resources/{kind}/cpu", found["resources"][kind]["cpu"]
        thousandths = _thousandths(now)
        other = thousandths + 1 if thousandths % 2 else thousandths - 1
        changes += [
            {"op": "test", "path": path, "value": now},
            {"op": "replace", "path": path, "value": f"{other}m"},
        ]
    return changes


def _cpu(container: Json, kind: str) -> int | None:
    found = ((container.get("resources") or {}).get(kind) or {}).get("cpu")
    return (None if found is None else _thousandths(found)) or None


def _thousandths(value: object) -> int:
    return round(quantity(value) * 1000)


class Relist:
    """Requests a relist for changes of one container that follow each other closely."""

    def __init__(self, pod: OwnPod, sidecar: Sidecar) -> None:
        self._pod = pod
        self._name = sidecar.name
        self._is_on = sidecar.relists
        self._started = -math.inf
        """Time of the last start of the container, by the event loop's clock."""
        self._failures = 0
        """Changes in a row for which a request failed."""
        self._answer: Json | None = None
        """The pod in the answer to the last request, which the watch may show later."""

    def container_started(self) -> None:
        """Note that the container has started, which is the end of a change."""
        self._started = asyncio.get_running_loop().time()

    async def begin(self, begun: asyncio.Future[None] | None) -> None:
        """Have the kubelet begin the change that the API server has just accepted, if it needs a relist for that.

        After a failure the change takes as long as without a request. After three such changes in a row there are no
        more requests.

        Args:
            begun: done when the kubelet has begun to end the container before; None if there is none.
        """
        if not self._is_on or asyncio.get_running_loop().time() - self._started > _SYNC_SECONDS:
            return
        for _ in range(_REQUESTS):
            if self._failures >= _TRIES:
                return
            if not await self._request() or begun is None:
                return
            await asyncio.wait([begun], timeout=_BEGIN_SECONDS)
            if begun.done():
                return

    async def _request(self) -> bool:
        """Request a relist; return whether the API server has accepted it."""
        try:
            await self._resize()
        except ClusterError as error:
            self._failures += 1
            if self._failures < _TRIES:
                logger.debug("No relist was requested: %s.", error)
            else:
                logger.warning("Short jobs wait for the kubelet's next look at the pod: %s.", error)
            return False
        self._failures = 0
        return True

    async def _resize(self) -> None:
        pod = max(self._pod.pod, self._answer or self._pod.pod, key=version_of)
        if words := why_not(sidecar_of(pod, self._name)[1]) or _infeasible(pod):
            self._failures = _TRIES
            raise ClusterError(words)
        path = f"{self._pod.path}/{self._pod.name}/resize"
        try:
            async with asyncio.timeout(reflector.REQUEST_SECONDS):
                self._answer = await self._pod.api.read("patch", path, body=operations(pod, self._name))
        except TimeoutError:
            raise ClusterError(f"no answer within {reflector.REQUEST_SECONDS:.0f} s") from None


def _infeasible(pod: Json) -> str:
    """Return why the kubelet never does a resize of the pod (k8s.io/api/core/v1/types.go, PodReasonInfeasible)."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if (condition.get("type"), condition.get("reason")) == ("PodResizePending", "Infeasible"):
            return f"the kubelet does not resize the container: {condition.get('message', 'no reason given')}"
    return ""
