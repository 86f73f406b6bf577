"""A client with the stolen token of a pilot whose pod the component own-pod guards."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import pilot
from lab.api import Lab
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import Pool, until

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
POLICIES = CHECKOUT / "components/own-pod/policies.yaml"
DENIED = (403, 422)
PARTS = ("ephemeralcontainers", "resize", "exec", "attach", "portforward", "proxy", "eviction", "status", "binding")
"""Subresources of a pod, one by one: the authorizer does not know pods/*."""


@dataclass(frozen=True)
class Answer:
    """Answer of the API server."""

    status: int
    text: str

    @property
    def denied(self) -> bool:
        """Whether it was the policy that said no: not the authorizer, not validation."""
        return self.status in DENIED and "ValidatingAdmissionPolicy" in self.text


class Thief:
    """Client of the API server with a pilot's token."""

    def __init__(self, lab: Lab, token: str) -> None:
        config = json.loads(lab.kubectl("config", "view", "--minify", "--raw", "-o", "json"))["clusters"][0]["cluster"]
        authority = config.get("certificate-authority-data")
        text = base64.b64decode(authority) if authority else Path(config["certificate-authority"]).read_bytes()
        self._context = ssl.create_default_context(cadata=text.decode())
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._server, self._token = config["server"], token

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """A request to the API; paths without a slash at the beginning are below the pilots' namespace."""
        url = self._server + (path if path.startswith("/") else f"/api/v1/namespaces/{PILOT_NAMESPACE}/{path}")
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:  # noqa: S310
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    def patch(self, pod: str, *operations: dict[str, Any], dry: bool = False) -> Answer:
        """A JSON patch of a pod."""
        return self.ask("PATCH", f"pods/{pod}{'?dryRun=All' if dry else ''}", list(operations), JSON_PATCH)

    def add(self, pod: str, container: dict[str, Any]) -> Answer:
        """Add an ephemeral container, for show."""
        body = {"spec": {"ephemeralContainers": [container]}}
        return self.ask("PATCH", f"pods/{pod}/ephemeralcontainers?dryRun=All", body, STRATEGIC)


@dataclass(frozen=True)
class Place:
    """A pilot under the policies, a pod that is nobody's business, and who has the pilot's token."""

    pool: Pool
    pilot: str
    other: str
    account: str
    thief: Thief

    @property
    def spec(self) -> dict[str, Any]:
        """The pilot's pod."""
        spec: dict[str, Any] = self.pool.of_pod(self.pilot).status()["spec"]
        return spec

    @property
    def image(self) -> str:
        """The pilot's own."""
        return str(self.spec["containers"][0]["image"])

    def sampler(self, **changes: Any) -> dict[str, Any]:
        """Return the ephemeral container that a pilot may add, with changes; None removes a field."""
        security = {
            "runAsUser": 65533,
            "runAsGroup": 65533,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        whole = {"name": "gpu-metrics-1", "image": self.image, "command": ["true"], "securityContext": security}
        if changes.get("securityContext") is not None:
            changes["securityContext"] = {**security, **changes["securityContext"]}
        return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def account_of(name: str) -> list[dict[str, Any]]:
    """A service account with the pilots' role, and all rights to pods beside."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": PILOT_NAMESPACE}
    group, metadata = "rbac.authorization.k8s.io", {"name": name, "namespace": PILOT_NAMESPACE}
    everything = {"apiGroups": [""], "resources": ["pods", *(f"pods/{one}" for one in PARTS)], "verbs": ["*"]}
    events = {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [everything, events]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def policies_of(account: str) -> str:
    """The component's, for another account: other pilots of the lab are left alone."""
    documents = list(yaml.safe_load_all(POLICIES.read_text()))
    for one in documents:
        one["metadata"]["name"] += f"-{account}"
        if "policyName" in one["spec"]:
            one["spec"]["policyName"] += f"-{account}"
        for condition in one["spec"].get("matchConditions", ()):
            assert ":k8spilot'" in condition["expression"]
            condition["expression"] = condition["expression"].replace(":k8spilot'", f":{account}'")
    return yaml.safe_dump_all(documents)


@contextmanager
def guarded(lab: Lab, name: str, account: str, *changes: Mapping[str, Any], **options: Any) -> Iterator[Thief]:
    """Deploy a pilot under the policies of own-pod, and yield somebody who has its token.

    Args:
        lab: the lab.
        name: the pod.
        account: a service account of its own.
        changes: operations of a JSON patch on the pod.
        options: arguments of `pilot.deploy`.
    """
    objects = yaml.safe_dump_all(account_of(account)) + "---\n" + policies_of(account)
    lab.kubectl("apply", "-f", "-", input=objects)
    try:
        own = {"op": "replace", "path": "/spec/serviceAccountName", "value": account}
        pilot.deploy(lab, name, overlay={"patches": [pilot.change(own, *changes)]}, **options)
        thief = Thief(lab, pilot.inside(lab, name, f"cat {ACCOUNT}/token"))
        label = {"op": "add", "path": "/metadata/labels/of-the-thief", "value": "x"}
        until(lambda: thief.patch(name, label, dry=True).denied, "the policies are in force")
        yield thief
    finally:
        pilot.discard(lab, name)
        lab.kubectl("delete", "--ignore-not-found", "-f", "-", input=objects)
