"""A pilot factory in a namespace of its own: pod templates and the provisioner, as an operator deploys them."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from lab.api import Lab
from lab.apply import apply_folder
from lab.errors import LabError
from lab.images import Images
from lab.patience import scaled
from lab.phases import CLEAN_UP, PILOT, phase
from lab.settings import CENTRAL_MANAGER, CHECKOUT, HERE, PILOT_NAMESPACE, POOL_DOMAIN, POOL_NAMESPACE

PATIENCE_S = scaled(120.0)
PROVISIONER = "k8spilot-provisioner"
STATUS = "k8spilot-provisioner-status"


@dataclass(frozen=True)
class TemplateOf:
    """A pod template, as differences from the lab's pilot."""

    name: str
    annotations: Mapping[str, str]
    """Limits, without the prefix k8spilot/."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional variables of the pilot container."""
    patches: Sequence[Mapping[str, Any]] = ()
    """Operations of a JSON patch on the template's CronJob."""
    components: Sequence[str] = ()


@dataclass(frozen=True)
class _Elsewhere(Lab):
    """The lab with another namespace for its pods."""

    elsewhere: str = ""

    @property
    def namespace(self) -> str:
        """Namespace of its pods."""
        return self.elsewhere


@dataclass(frozen=True)
class Factory:
    """A namespace with a provisioner. Its methods raise LabError."""

    lab: Lab
    namespace: str

    @property
    def here(self) -> Lab:
        """The lab, for faults of pods in the namespace."""
        return _Elsewhere(**{one.name: getattr(self.lab, one.name) for one in fields(Lab)}, elsewhere=self.namespace)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run kubectl in the namespace."""
        verb, *rest = arguments
        return self.lab.kubectl(verb, "-n", self.namespace, *rest, input=input)

    @phase(PILOT)
    def apply(self, *templates: TemplateOf, settings: Mapping[str, str] | None = None) -> None:
        """Apply these templates, and the provisioner with these settings."""
        folder = self.write(templates, settings or {})
        apply_folder(self.lab, folder)

    def pilots(self) -> list[dict[str, Any]]:
        """The pods of pilots, by name."""
        found = json.loads(self.kubectl("get", "pods", "-l", "k8spilot/template", "-o", "json"))["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def status(self) -> dict[str, Any]:
        """The provisioner's status; empty before the first turn."""
        found = self.kubectl("get", "configmap", STATUS, "--ignore-not-found", "-o", "json")
        text = json.loads(found)["data"]["status.json"] if found.strip() else "{}"
        status: dict[str, Any] = json.loads(text)
        return status

    def provisioners(self) -> list[str]:
        """The names of the provisioners' pods that are ready and do not end."""
        pods = json.loads(self.kubectl("get", "pods", "-l", f"app.kubernetes.io/name={PROVISIONER}", "-o", "json"))
        return [
            str(pod["metadata"]["name"])
            for pod in pods["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
        ]

    def provisioner(self) -> str:
        """The name of the provisioner's pod that is ready. There may be another one that ends."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.provisioners()):
            if time.monotonic() > deadline:
                raise LabError(f"no provisioner is ready in {self.namespace} after {PATIENCE_S:.0f} s")
            time.sleep(0.3)
        return found[0]

    def address(self, pod: str) -> str:
        """The address of a pod in the namespace."""
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")

    def patch_provisioner(self, *operations: Mapping[str, Any]) -> None:
        """Apply a JSON patch to the Deployment; return when it is rolled out."""
        self.kubectl("patch", "deployment", PROVISIONER, "--type=json", "--patch", json.dumps(operations))
        self.kubectl("rollout", "status", f"deployment/{PROVISIONER}", f"--timeout={PATIENCE_S:.0f}s")

    def log(self) -> str:
        """The log of all provisioners."""
        return self.kubectl("logs", "-l", f"app.kubernetes.io/name={PROVISIONER}", "--tail=-1", "--prefix")

    def pilot_logs(self) -> str:
        """The last lines of the pilots' logs."""
        return self.kubectl("logs", "-l", "k8spilot/template", "-c", "pilot", "--tail=60", "--prefix")

    def events(self) -> list[dict[str, Any]]:
        """Events about templates."""
        selector = "involvedObject.kind=CronJob"
        found: list[dict[str, Any]] = json.loads(
            self.kubectl("get", "events", "--field-selector", selector, "-o", "json")
        )["items"]
        return found

    def write(self, templates: Sequence[TemplateOf], settings: Mapping[str, str]) -> Path:
        """Write the kustomizations: a folder for the pod, one for each template, and the site's above them."""
        root = self.lab.settings.overlays / self.namespace
        image, _, tag = self.lab.image.rpartition(":")
        own, _, own_tag = Images(self.lab.settings, self.lab.progress).provisioner().rpartition(":")
        options = {"disableNameSuffixHash": True}
        literals = [f"CONDOR_HOST={self.lab.pool_host}"]
        merged = {"name": "k8spilot-pilot", "namespace": PILOT_NAMESPACE, "behavior": "merge", "literals": literals}
        components = CHECKOUT / "components"
        _kustomization(
            root / "pod",
            resources=[HERE / "overlay"],
            images=[{"name": "k8spilot", "newName": image, "newTag": tag}],
            configMapGenerator=[{**merged, "options": options}],
        )
        for one in templates:
            _kustomization(
                root / one.name,
                resources=[root / "pod"],
                components=[*(components / name for name in one.components), components / "pilot-template"],
                patches=[{"target": {"kind": "CronJob", "name": "pilots"}, "patch": json.dumps(_operations(one))}],
            )
        _kustomization(
            root,
            namespace=self.namespace,
            resources=[root / "pod", *(root / one.name for one in templates)],
            components=[components / "provisioner"],
            images=[{"name": "k8spilot-provisioner", "newName": own, "newTag": own_tag}],
            configMapGenerator=[
                {
                    "name": PROVISIONER,
                    "literals": [f"{name}={value}" for name, value in settings.items()],
                    "options": options,
                }
            ],
        )
        return root


@contextmanager
def factory(lab: Lab, namespace: str) -> Iterator[Factory]:
    """Make a namespace with the pool's tokens; remove it at the end, with all pilots."""
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    labels = {"app.kubernetes.io/managed-by": "k8spilot-lab", **level, **lab.labels}
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}]
    for kind, name in (("secret", "pool-token"), ("configmap", "registries")):
        found = json.loads(lab.kubectl("get", kind, name, "-n", PILOT_NAMESPACE, "-o", "json"))
        made.append({**found, "metadata": {"name": name, "namespace": namespace}})
    command = ["condor_token_create", "-identity", f"provisioner@{POOL_DOMAIN}", "-authz", "READ"]
    token = lab.kubectl("exec", "-n", POOL_NAMESPACE, CENTRAL_MANAGER, "--", *command)
    reading = {"name": "provisioner-token", "namespace": namespace}
    made.append({"apiVersion": "v1", "kind": "Secret", "metadata": reading, "stringData": {"token": token}})
    lab.kubectl("delete", "namespace", namespace, "--ignore-not-found")  # of a run that was killed
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(made))
    try:
        yield Factory(lab, namespace)
    finally:
        with phase(CLEAN_UP):
            # Pilots get no time for their jobs, which nobody looks at any more.
            lab.kubectl("delete", "cronjobs,deployments", "--all", "-n", namespace, "--wait=false")
            lab.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=1", "--wait=false")
            lab.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")


def _operations(one: TemplateOf) -> list[dict[str, Any]]:
    return [
        {"op": "replace", "path": "/metadata/name", "value": one.name},
        {
            "op": "replace",
            "path": "/metadata/annotations",
            "value": {f"k8spilot/{key}": value for key, value in one.annotations.items()},
        },
        *(
            {
                "op": "add",
                "path": "/spec/jobTemplate/spec/template/spec/containers/0/env/-",
                "value": {"name": key, "value": value},
            }
            for key, value in one.environment.items()
        ),
        *(dict(operation) for operation in one.patches),
    ]


def _kustomization(folder: Path, **fields: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("resources", "components"):
        if name in fields:
            fields[name] = [os.path.relpath(path, folder) for path in fields[name]]
    document = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **fields}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
