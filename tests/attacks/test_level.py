"""The level is the namespace's, which enforces it; what the pilot may do is what docs/explanation/security.md says."""

import json
from typing import Any

import pytest

from lab.errors import LabError
from tests.attacks.ground import Ground


def test_the_namespace_enforces_the_level(ground: Ground) -> None:
    """The pilot runs in it, and a pod that asks for more is not let in."""
    namespace = ground.lab.namespace
    labels = json.loads(ground.lab.kubectl("get", "namespace", namespace, "-o", "json"))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == ground.lab.level
    spec = ground.status()["spec"]
    more: list[dict[str, Any]] = [{"hostPID": True}, {"hostNetwork": True}]
    more.append({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]})
    if ground.lab.level == "restricted":
        more.append({})  # a container as any, which may be root
    for change in more:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{ground.pod}-more"},
            "spec": {"containers": [{"name": "x", "image": ground.lab.image}], **change},
        }
        with pytest.raises(LabError, match="violates PodSecurity"):
            ground.lab.kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert not {"hostPID", "hostNetwork", "hostIPC"} & {name for name, value in spec.items() if value}
    ground.is_fit()


def test_the_pilots_account_may_do_what_the_role_says_and_no_more(ground: Ground) -> None:
    """And what components and a partitionable slot need, where tests of these have it beside that."""
    account = f"system:serviceaccount:{ground.lab.namespace}:{ground.status()['spec']['serviceAccountName']}"
    before = _components(ground)
    listed = ground.lab.kubectl("auth", "can-i", "--list", "-n", ground.lab.namespace, "--as", account)
    found = {row[0]: row[-1] for line in listed.splitlines()[1:] if (row := line.split(maxsplit=3))[0] != "[]"}
    own = {
        name: verbs[verbs.rindex("[") :] for name, verbs in found.items() if not name.startswith(("selfsubject", "["))
    }
    for resource, verbs in {**before, **_components(ground)}.items():
        assert {*own.pop(resource, verbs).strip("[]").split()} == {*verbs.strip("[]").split()}
    assert own == {"pods": "[get list watch patch]", "events": "[create patch]"}


def _components(ground: Ground) -> dict[str, str]:
    """Resources and verbs of the components that another test has in force."""
    gpus = ("rolebinding", "k8spilot-gpu-metrics", "-n", ground.lab.namespace)
    nodes = ("clusterrolebinding", "k8spilot-node-images")
    sizes = ("rolebinding", "k8spilot-resize", "-n", ground.lab.namespace)
    claims = ("rolebinding", "k8spilot-gpu-claims", "-n", ground.lab.namespace)
    listing = ("rolebinding", "k8spilot-relist", "-n", ground.lab.namespace)
    rights = {
        gpus: ("pods/ephemeralcontainers", "[patch]"),
        nodes: ("nodes", "[get]"),
        sizes: ("pods/resize", "[patch]"),
        claims: ("resourceclaims.resource.k8s.io", "[get]"),
        listing: ("pods/resize", "[patch]"),
    }
    return dict(
        right
        for binding, right in rights.items()
        if ground.lab.kubectl("get", *binding, "--ignore-not-found", "-o", "name").strip()
    )
