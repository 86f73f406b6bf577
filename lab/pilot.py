"""Deploy pilot pods from the project's manifests with an overlay, as an operator would."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from k8spilot.cli.slots import with_slots
from lab.api import Lab
from lab.apply import apply
from lab.errors import LabError
from lab.kube_api import connect
from lab.patience import scaled
from lab.phases import CLEAN_UP, PILOT, phase
from lab.settings import CHECKOUT, HERE, PILOT_NAMESPACE

PATIENCE_S = scaled(90.0)
DISCARD_GRACE_S = 15
"""Grace period of discarded pods, in seconds."""
BASE_IMAGE = "k8spilot"
"""The name that the manifests call the project's image by."""
SUPERVISOR = "libexec/[s]upervisor"
"""Pattern of the supervisor's command line. The brackets keep the program that looks for it from matching itself."""


@dataclass(frozen=True)
class Shares:
    """Division of the manifest's resources among several payload containers: options of `k8spilot slots`."""

    equal: bool = False
    gpu_containers: int | None = None


_DEFAULT_SHARES = Shares()


@phase(PILOT)
def deploy(
    lab: Lab,
    name: str = "pilot",
    environment: Mapping[str, str] | None = None,
    overlay: Mapping[str, Any] | None = None,
    *,
    slots: int = 1,
    shares: Shares = _DEFAULT_SHARES,
    rewrite: Callable[[str], str] = str,
) -> None:
    """Deploy a pilot pod called `name`, in place of one that has that name; return when its containers run.

    `environment` is added to the pilot container's variables, `overlay` are more fields of its kustomization;
    `components` in it are names of folders in components/. `slots` is the number of payload containers, which share the
    resources of the one in the manifest as `shares` says; `rewrite` changes the manifest of such a pod at last. Raises
    LabError.
    """
    if not (CHECKOUT / "manifests/kustomization.yaml").exists():
        raise LabError(f"{CHECKOUT} has no manifests/kustomization.yaml to deploy a pilot from")
    delete(lab, name)
    delete_events(lab, name)
    folder = write_overlay(lab, name, {"CONDOR_HOST": lab.pool_host, **(environment or {})}, overlay)
    manifests = lab.kubectl("kustomize", str(folder))
    if slots != 1:
        manifests = rewrite(with_slots(manifests, slots, **asdict(shares)))
    apply(lab, manifests)
    deadline = time.monotonic() + PATIENCE_S
    while not _runs(pod := _pod(lab, name)):
        if pod["status"].get("phase") == "Failed" or time.monotonic() > deadline:
            raise LabError(f"the pod {lab.namespace}/{name} does not run: {_why(pod)}")
        time.sleep(0.2)


def change(*operations: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of an overlay's `patches`: operations of a JSON patch (RFC 6902) on the pod."""
    return {"target": {"kind": "Pod", "name": "pilot"}, "patch": json.dumps(operations)}


def label(lab: Lab) -> list[dict[str, Any]]:
    """Return operations of a JSON patch (RFC 6902) that add the lab's labels to an object that has some."""
    return [
        {"op": "add", "path": f"/metadata/labels/{name.replace('/', '~1')}", "value": value}
        for name, value in lab.labels.items()
    ]


def in_memory(volume: str, size: str) -> dict[str, Any]:
    """Return a part of an overlay's `patches`: an emptyDir of the pod in memory, of at most `size` (a quantity)."""
    patch = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pilot"},
        "spec": {"volumes": [{"name": volume, "emptyDir": {"medium": "Memory", "sizeLimit": size}}]},
    }
    return {"target": {"kind": "Pod", "name": "pilot"}, "patch": yaml.safe_dump(patch)}


@phase(CLEAN_UP)
def delete(lab: Lab, name: str = "pilot") -> None:
    """Remove the pod `name`; the service account and its rights stay for others."""
    where = ("pod", name, "-n", lab.namespace)
    lab.kubectl("delete", *where, "--ignore-not-found", "--wait=true", timeout=300)


@phase(CLEAN_UP)
def discard(lab: Lab, *names: str) -> None:
    """Delete pods without waiting for their end.

    They have some seconds to end by themselves: HTCondor then takes its slot out of the pool. The ad of a pod that is
    killed stays in the pool for a quarter of an hour.
    """
    where = ("-n", lab.namespace, "--ignore-not-found", "--wait=false")
    lab.kubectl("delete", "pod", *names, *where, f"--grace-period={DISCARD_GRACE_S}")


def inside(lab: Lab, name: str, script: str, container: str = "pilot") -> str:
    """Run a shell script in the pilot container of the pod `name`, or another; return its output. Raises LabError."""
    return lab.kubectl("exec", "-n", lab.namespace, name, "-c", container, "--", "sh", "-c", script)


def runs(lab: Lab, name: str) -> bool:
    """Return whether the containers of the pod `name` run. Raises LabError."""
    return _runs(_pod(lab, name))


def volumes(lab: Lab, name: str) -> dict[str, dict[str, Any]]:
    """Return the volumes of the pod `name`, by their names."""
    return {volume["name"]: volume for volume in _pod(lab, name)["spec"]["volumes"]}


def write_overlay(lab: Lab, name: str, environment: Mapping[str, str], more: Mapping[str, Any] | None = None) -> Path:
    """Write the kustomization for one pod into the lab's folder of temporary files; return its folder."""
    folder = lab.settings.overlays / name
    folder.mkdir(parents=True, exist_ok=True)
    image, _, tag = lab.image.rpartition(":")
    containers = ("/spec/containers/0", *(("/spec/initContainers/2",) if lab.level == "restricted" else ()))
    patch = [
        {"op": "replace", "path": "/metadata/name", "value": name},
        *label(lab),
        *(
            {"op": "add", "path": f"{container}/env/-", "value": {"name": key, "value": value}}
            for key, value in environment.items()
            for container in containers
        ),
    ]
    document: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": lab.namespace,
        "resources": [os.path.relpath(HERE / "overlay", folder)],
        "images": [{"name": BASE_IMAGE, "newName": image, "newTag": tag}],
        "configMapGenerator": [
            {
                "name": "k8spilot-pilot",
                "namespace": PILOT_NAMESPACE,
                "behavior": "merge",
                "literals": [f"CONDOR_HOST={lab.pool_host}"],
                "options": {"disableNameSuffixHash": True},
            },
            *(more or {}).get("configMapGenerator", ()),
        ],
        **{key: value for key, value in (more or {}).items() if key != "configMapGenerator"},
        "patches": [
            *(more or {}).get("patches", ()),
            {"target": {"kind": "Pod", "name": "pilot"}, "patch": json.dumps(patch)},
        ],
    }
    level = ("restricted",) if lab.level == "restricted" else ()
    components = dict.fromkeys((*level, *lab.settings.components, *document.get("components", ())))
    document["components"] = [os.path.relpath(CHECKOUT / "components" / one, folder) for one in components]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return folder


def delete_events(lab: Lab, name: str) -> None:
    """Delete the Events of earlier pods called `name`, which the API server keeps for an hour.

    A test that selects Events by the pod's name would count them as Events of the new pod. Raises LabError.
    """
    selector = [("fieldSelector", f"involvedObject.kind=Pod,involvedObject.name={name}")]
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    events = f"/api/v1/namespaces/{lab.namespace}/events"
    try:
        connect(lab.kubeconfig).delete(events, options, selector, timeout=PATIENCE_S)
    except TimeoutError as problem:
        raise LabError(f"could not delete {events} of {name}: no answer within {PATIENCE_S:g} s") from problem


def _pod(lab: Lab, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = json.loads(lab.kubectl("get", "pod", name, "-n", lab.namespace, "-o", "json"))
    return pod


def _statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _runs(pod: dict[str, Any]) -> bool:
    running = {status["name"] for status in _statuses(pod) if "running" in status["state"]}
    sidecars = {one["name"] for one in pod["spec"]["initContainers"] if one.get("restartPolicy") == "Always"}
    return sidecars | {"pilot"} <= running


def _why(pod: dict[str, Any]) -> str:
    for status in _statuses(pod):
        for state in (status["state"].get("waiting"), status["state"].get("terminated")):
            if state and state.get("reason") != "Completed":
                words = (state.get("message") or "no message").strip().splitlines()[-1]
                return f"container {status['name']}: {state.get('reason')}: {words}"
    return f"its phase is {pod['status'].get('phase')}"
