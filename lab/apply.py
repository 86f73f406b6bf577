"""Apply manifests from this process, by server-side apply: what `kubectl apply` does, without a program.

`kubectl apply` of a pilot takes 0.9 s of processor time, most of it to load the schema of the API and to check objects.
Here the API server checks them (`fieldValidation=Strict`). Tests deploy some two hundred pilots.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from lab.api import Lab
from lab.errors import LabError
from lab.kube_api import connect
from lab.patience import scaled

_LIMIT_S: Final = 60.0
_OF_THE_CLUSTER: Final = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "Namespace",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)


def apply_folder(lab: Lab, folder: Path) -> None:
    """Apply the kustomization in a folder. Raises LabError."""
    apply(lab, lab.kubectl("kustomize", str(folder)))


def apply(lab: Lab, manifests: str) -> None:
    """Create the objects of `manifests` (YAML documents), or change those that are there. Raises LabError."""
    api = connect(lab.kubeconfig)
    for one in yaml.load_all(manifests, Loader=yaml.CSafeLoader):
        path = path_of(one)
        try:
            api.apply(path, one, timeout=scaled(_LIMIT_S))
        except TimeoutError as problem:
            raise LabError(f"could not apply {path}: no answer within {scaled(_LIMIT_S):g} s") from problem


def path_of(manifest: dict[str, Any]) -> str:
    """Path of an object in the API (Kubernetes, "API Concepts": Resource URIs). Raises LabError."""
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    if kind not in _OF_THE_CLUSTER and not metadata.get("namespace"):
        raise LabError(
            f"{kind} {metadata['name']} names no namespace; if the kind has none, lab/apply.py has to know it"
        )
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"{kind.lower()}s"
    where = "" if kind in _OF_THE_CLUSTER else f"/namespaces/{metadata['namespace']}"
    return f"{root}{where}/{plural}/{metadata['name']}"
