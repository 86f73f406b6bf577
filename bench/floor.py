"""The floor: what the cluster itself needs from a PATCH of an image to the next container's `running`."""

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from kubernetes import client, config, watch

from lab.api import Lab
from lab.settings import PILOT_NAMESPACE

POD = "bench-floor"


def manifest(image: str) -> dict[str, Any]:
    """A pod with a native sidecar that ends at once on SIGTERM, and a container that keeps it alive."""
    sleep = ["sleep", "100000"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": PILOT_NAMESPACE},
        "spec": {
            "shareProcessNamespace": True,  # so that sleep is not the first process and SIGTERM ends it
            "terminationGracePeriodSeconds": 1,
            "initContainers": [{"name": "payload", "image": image, "command": sleep, "restartPolicy": "Always"}],
            "containers": [{"name": "pilot", "image": image, "command": sleep}],
        },
    }


class Floor:
    """A bare pod whose sidecar's image is changed."""

    def __init__(self, lab: Lab, repository: str, digest: str) -> None:
        self._lab = lab
        self._reference = f"{repository}:bench-{{}}@{digest}"
        self._core = client.CoreV1Api(config.new_client_from_config(str(lab.kubeconfig)))

    def change(self) -> float:
        """Change the image to a fresh reference; return the seconds from the PATCH to the new container's `running`."""
        before = self._running()
        image = self._reference.format(uuid.uuid4().hex[:12])
        version = self._core.read_namespaced_pod(POD, PILOT_NAMESPACE).metadata.resource_version
        began = time.monotonic()
        body = {"spec": {"initContainers": [{"name": "payload", "image": image}]}}
        self._core.patch_namespaced_pod(POD, PILOT_NAMESPACE, body)
        events = watch.Watch().stream(
            self._core.list_namespaced_pod,
            PILOT_NAMESPACE,
            field_selector=f"metadata.name={POD}",
            resource_version=version,
            timeout_seconds=60,
        )
        for event in events:
            status = event["object"].status.init_container_statuses[0]
            if status.state.running and status.container_id not in (None, before):
                return time.monotonic() - began
        raise SystemExit("the bare pod's sidecar does not come to run within 60 s")

    def _running(self) -> str:
        statuses = self._core.read_namespaced_pod(POD, PILOT_NAMESPACE).status.init_container_statuses
        return str(statuses[0].container_id)


@contextlib.contextmanager
def floor(lab: Lab, repository: str, digest: str) -> Iterator[Floor]:
    """A running bare pod, for as long as the context lasts."""
    gone = ("delete", "pod", POD, "-n", PILOT_NAMESPACE, "--ignore-not-found", "--wait=true")
    lab.kubectl(*gone)
    lab.kubectl("apply", "-f", "-", input=json.dumps(manifest(f"{repository}:bench@{digest}")))
    try:
        lab.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "-n", PILOT_NAMESPACE, "--timeout=60s")
        yield Floor(lab, repository, digest)
    finally:
        lab.kubectl(*gone)
