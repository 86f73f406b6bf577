"""Simulated nodes and kubelets: each follows the pods of its node and writes the status that a kubelet would write."""

import asyncio
import logging
import random
import uuid
from contextlib import suppress
from typing import Any

import aiohttp

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import Access, Api
from k8spilot.kube.watch_stream import SILENCE_SECONDS, events

logger = logging.getLogger(__name__)

PODS_OF_A_NODE = 100
CHANGE_SECONDS = 0.15
"""Seconds from a change of image to the status that shows it, as on the lab's node."""
_AGAIN_SECONDS = 1.0


class Kubelet:
    """The simulated kubelet of a node."""

    def __init__(self, access: Access, node: str) -> None:
        self._api = Api(access)
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()
        self._latest: dict[str, dict[str, Any]] = {}
        """Pods whose status must change, each with its latest known object."""

    async def follow(self) -> None:
        """Watch the node's pods, until cancelled."""
        while True:
            with suppress(ClusterError, aiohttp.ClientError, OSError, ValueError, KeyError, TimeoutError):
                await self._watch()
            await asyncio.sleep(_AGAIN_SECONDS * random.uniform(0.1, 1))  # noqa: S311

    async def close(self) -> None:
        """End all requests."""
        for task in self._tasks:
            task.cancel()
        await self._api.__aexit__()

    async def _watch(self) -> None:
        chosen = {"fieldSelector": f"spec.nodeName={self._node}"}
        listed = await self._api.read("list", "/api/v1/pods", query={**chosen, "resourceVersion": "0"})
        for pod in listed["items"]:
            self._see(pod)
        version = listed["metadata"]["resourceVersion"]
        query = {**chosen, "watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with self._api.open("watch", "/api/v1/pods", query=query) as response:
            async for event in events(response.content, lambda: SILENCE_SECONDS):
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._see(event["object"])

    def _see(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        at_work = name in self._latest
        if at_work or not _is_right(pod):
            self._latest[name] = pod
        if not at_work and name in self._latest:
            task = asyncio.create_task(self._mend(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _mend(self, name: str) -> None:
        """Write the pod's status until it is right; a change that comes meanwhile is handled after that."""
        while not _is_right(pod := self._latest[name]):
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}/status"
            fresh = not pod.get("status", {}).get("initContainerStatuses")
            await asyncio.sleep(0 if fresh else CHANGE_SECONDS)
            try:
                body = {"status": status(pod)}
                answer = await self._api.read("patch", path, body=body, patch="strategic-merge-patch")
            except ClusterError as error:
                logger.warning("The status of %s cannot be written: %s", name, error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self._latest[name] = answer
        del self._latest[name]


def status(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a kubelet's status of a pod whose containers all run, each with the image of its spec."""
    spec = pod["spec"]

    def of(container: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "containerID": f"containerd://{uuid.uuid4().hex}{uuid.uuid4().hex}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }

    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": name, "status": "True"} for name in ("Initialized", "Ready", "ContainersReady")],
        "initContainerStatuses": [of(one) for one in spec.get("initContainers", [])],
        "containerStatuses": [of(one) for one in spec["containers"]],
    }


def _is_right(pod: dict[str, Any]) -> bool:
    """Return whether the status shows each container with the image of the spec."""
    status = pod.get("status", {})
    shown = {one["name"]: one["image"] for kind in ("init", "") for one in status.get(_statuses(kind)) or []}
    spec = pod["spec"]
    wanted = {one["name"]: one["image"] for one in [*spec.get("initContainers", []), *spec["containers"]]}
    return shown == wanted


def _statuses(kind: str) -> str:
    return "initContainerStatuses" if kind else "containerStatuses"
