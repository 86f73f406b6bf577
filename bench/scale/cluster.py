"""The objects in the second API server: a namespace, the pilots' role, nodes, and pods from the project's manifests."""

import asyncio
import copy
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.scale.kubelets import PODS_OF_A_NODE, Kubelet
from bench.scale.pilots import Request, SimulatedPilot
from bench.scale.server import Server
from k8spilot.kube.client import Access
from lab.api import Lab
from lab.settings import HERE, PILOT_NAMESPACE

_NAMESPACE = f"/api/v1/namespaces/{PILOT_NAMESPACE}"
_RIGHTS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{PILOT_NAMESPACE}"
_PATHS = {
    "ServiceAccount": f"{_NAMESPACE}/serviceaccounts",
    "Role": f"{_RIGHTS}/roles",
    "RoleBinding": f"{_RIGHTS}/rolebindings",
}
_TOKEN_SECONDS = 24 * 3600
_SEEN_SECONDS = 300.0
"""Time limit until all pilots have seen their pods."""


class Cluster:
    """Pods with their simulated pilots and kubelets."""

    def __init__(self, lab: Lab, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        """Folder of the pilots' tokens: one folder for each."""
        documents = list(yaml.safe_load_all(lab.kubectl("kustomize", str(HERE / "overlay"))))
        self._pod = next(one for one in documents if one["kind"] == "Pod")
        self._documents = [one for one in documents if one["kind"] in _PATHS]
        self.requests: list[Request] = []
        """Requests of all pilots."""
        self.pilots: list[SimulatedPilot] = []
        self._kubelets: list[Kubelet] = []
        self._following: list[asyncio.Task[None]] = []

    async def prepare(self) -> None:
        """Make the objects that all pods share. Raises LabError."""
        await self._server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": PILOT_NAMESPACE}})
        for document in self._documents:
            await self._server.ask("POST", _PATHS[document["kind"]], document)
        await self._server.ask("POST", f"{_NAMESPACE}/serviceaccounts", {"metadata": {"name": "kubelet"}})
        everything = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        whom = [{"kind": "ServiceAccount", "name": "kubelet", "namespace": PILOT_NAMESPACE}]
        binding = {"metadata": {"name": "kubelets"}, "roleRef": everything, "subjects": whom}
        await self._server.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        await self._write_account("kubelet", "kubelet", None)

    async def make_pods(self, count: int) -> None:
        """Make pods and their nodes, until there are `count`; their pilots do not run yet."""
        while len(self._kubelets) * PODS_OF_A_NODE < count:
            node = f"node-{len(self._kubelets)}"
            await self._server.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
            kubelet = Kubelet(Access(self._server.url, self._folder / "kubelet"), node)
            self._kubelets.append(kubelet)
            self._following.append(asyncio.create_task(kubelet.follow()))
        fresh = range(len(self.pilots), count)
        self.pilots += await asyncio.gather(*(self._make_pod(number) for number in fresh))

    async def begin(self, first: int) -> None:
        """Start the pilots from number `first` on; return when all have seen their pods. Raises TimeoutError."""
        for pilot in self.pilots[first:]:
            pilot.begin()
            await asyncio.sleep(0.002)  # factories do not start thousands of pods in one second
        async with asyncio.timeout(_SEEN_SECONDS):
            await asyncio.gather(*(pilot.seen() for pilot in self.pilots[first:]))

    async def all_watch(self, seconds: float) -> None:
        """Wait until all pilots watch their pods again. Raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds):
            for pilot in self.pilots:
                await pilot.watching()

    async def close(self) -> None:
        """End pilots and kubelets."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await asyncio.gather(*(one.end() for one in self.pilots), *(one.close() for one in self._kubelets))

    async def _make_pod(self, number: int) -> SimulatedPilot:
        name = f"pilot-{number}"
        pod = copy.deepcopy(self._pod)
        pod["metadata"]["name"] = name
        pod["spec"]["nodeName"] = f"node-{number // PODS_OF_A_NODE}"
        made = json.loads(await self._server.ask("POST", f"{_NAMESPACE}/pods", pod))
        uid = str(made["metadata"]["uid"])
        account = await self._write_account(
            name, "k8spilot", {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
        )
        return SimulatedPilot(self._server.url, account, PILOT_NAMESPACE, name, uid, self.requests)

    async def _write_account(self, name: str, account: str, bound: dict[str, Any] | None) -> Path:
        """Write and return a folder with `token` and `ca.crt`, as the kubelet mounts it. Each pod has its own token."""
        spec: dict[str, Any] = {"audiences": [], "expirationSeconds": _TOKEN_SECONDS}
        if bound is not None:
            spec["boundObjectRef"] = bound
        answer = await self._server.ask("POST", f"{_NAMESPACE}/serviceaccounts/{account}/token", {"spec": spec})
        folder = self._folder / name
        folder.mkdir()
        (folder / "token").write_text(json.loads(answer)["status"]["token"])
        shutil.copy(self._server.authority, folder / "ca.crt")
        return folder


def between(requests: Sequence[Request], begin: float, end: float) -> list[Request]:
    """Return the requests in a span of time."""
    return [request for request in requests if begin <= request.at < end]
