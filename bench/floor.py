"""The floor: the time that the cluster needs from the PATCH of an image until the new container is `running`."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from kubernetes import client, config, watch

from bench.images import renamed
from lab.api import Lab
from lab.errors import LabError
from lab.settings import PILOT_NAMESPACE

FLOOR = "bare PATCH"
CONFINED = "bare PATCH under a seccomp profile"
"""Contestant with the seccomp profile that pilots' containers have, and that Pod Security `restricted` requires."""
_RUNNING_S = 60
_REQUEST_S = (5, 30)
"""Time limits of a request: to connect, and between two pieces of an answer."""


class Floor:
    """A bare pod whose sidecar's image is changed."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._name = name
        self._core = client.CoreV1Api(config.new_client_from_config(str(lab.kubeconfig)))

    def change(self, reference: str) -> float:
        """Change the image to `reference`, under a fresh tag; return the seconds from PATCH to the running container.

        Raises LabError.
        """
        before = self._running()
        body = {"spec": {"initContainers": [{"name": "payload", "image": renamed(reference)}]}}
        version = self._read().metadata.resource_version
        began = time.monotonic()
        self._core.patch_namespaced_pod(self._name, PILOT_NAMESPACE, body, _request_timeout=_REQUEST_S)
        events = watch.Watch().stream(
            self._core.list_namespaced_pod,
            PILOT_NAMESPACE,
            field_selector=f"metadata.name={self._name}",
            resource_version=version,
            timeout_seconds=_RUNNING_S,
            _request_timeout=(_REQUEST_S[0], _RUNNING_S + _REQUEST_S[1]),
        )
        for event in events:
            status = event["object"].status.init_container_statuses[0]
            if status.state.running and status.container_id not in (None, before):
                return time.monotonic() - began
        raise LabError(f"the bare pod's sidecar does not come to run within {_RUNNING_S} s")

    def _running(self) -> str:
        return str(self._read().status.init_container_statuses[0].container_id)

    def _read(self) -> Any:
        return self._core.read_namespaced_pod(self._name, PILOT_NAMESPACE, _request_timeout=_REQUEST_S)


@contextlib.contextmanager
def floor(lab: Lab, name: str, reference: str, *, confined: bool = False) -> Iterator[Floor]:
    """Run a bare pod while the context lasts; `confined` by the runtime's seccomp profile."""
    gone = ("delete", "pod", name, "-n", PILOT_NAMESPACE, "--ignore-not-found", "--wait=true")
    lab.kubectl(*gone)
    manifest = _manifest(name, reference)
    if confined:
        manifest["spec"]["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}}
    lab.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    try:
        lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", PILOT_NAMESPACE, "--timeout=60s")
        yield Floor(lab, name)
    finally:
        lab.kubectl(*gone)


def _manifest(name: str, image: str) -> dict[str, Any]:
    """Return a pod with a native sidecar that ends at once on SIGTERM, and a container that keeps the pod alive."""
    # As the pilot's containers: `latest` would have the registry asked at each start otherwise.
    same = {"image": image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/work", "sleep", "100000000"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PILOT_NAMESPACE},
        "spec": {
            "shareProcessNamespace": True,  # so that it is not the first process and SIGTERM ends it
            "terminationGracePeriodSeconds": 1,
            "initContainers": [{"name": "payload", **same, "restartPolicy": "Always"}],
            "containers": [{"name": "pilot", **same}],
        },
    }
