"""The HTCondor pool in the cluster: a central manager, an access point with users, tokens for pilots."""

import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass
from string import Template
from typing import Any

import yaml

from lab import kubectl, node, shell
from lab.errors import LabError
from lab.levels import NAMESPACES
from lab.patience import scaled
from lab.settings import (
    ACCESS_POINT,
    CENTRAL_MANAGER,
    COLLECTOR_SERVICE_ADDRESS,
    HERE,
    HTCONDOR,
    NODE_ADDRESS,
    POOL_DOMAIN,
    POOL_NAMESPACE,
    Settings,
)

FOLDER = HERE / "pool"
PATIENCE_S = scaled(150)
_OLD_SECURITY = """\
use security:recommended_v9_0
SEC_READ_AUTHENTICATION = OPTIONAL
SEC_READ_INTEGRITY = OPTIONAL
SEC_READ_ENCRYPTION = OPTIONAL
SEC_CLIENT_AUTHENTICATION = OPTIONAL
SEC_CLIENT_INTEGRITY = OPTIONAL
SEC_CLIENT_ENCRYPTION = OPTIONAL
"""
"""Meaning of `use security:recommended` since HTCondor 24: everybody may read."""
OWNER = {"app.kubernetes.io/managed-by": "k8spilot-lab"}
PILOT_RIGHTS = ("ADVERTISE_STARTD", "ADVERTISE_MASTER", "READ")


@dataclass(frozen=True)
class Pool:
    """The pool in one cluster, deployed with one image."""

    settings: Settings
    image: str

    def ensure(self) -> None:
        """Deploy those parts of the pool that are missing, unhealthy or out of date; return when it takes jobs."""
        self._apply((FOLDER / "namespaces.yaml").read_text(), "make the namespaces")
        if not self._exists("secret", "signing-key"):
            self._apply(_dump(_secret("signing-key", {"signing-key": secrets.token_bytes(64)})), "keep the pool's key")
        self._deploy(CENTRAL_MANAGER)
        for namespace in NAMESPACES.values():
            self._apply(_dump(self._registries(namespace)), "tell pilots of the registry")
        for namespace, name, identity, rights in (
            (POOL_NAMESPACE, "access-point-token", "condor", ()),
            *((namespace, "pool-token", "pilot", PILOT_RIGHTS) for namespace in NAMESPACES.values()),
        ):
            if not self._exists("secret", name, namespace):
                document = _secret(name, {"token": self._token(identity, rights).encode()}, namespace)
                self._apply(_dump(document), f"keep the token of {identity}")
        self._deploy(ACCESS_POINT)
        self._wait(CENTRAL_MANAGER)
        self._wait(ACCESS_POINT)

    def remove(self) -> None:
        """Remove the namespaces of the lab, with all their objects."""
        selector = ",".join(f"{key}={value}" for key, value in OWNER.items())
        self._kubectl("delete", "namespace", "--selector", selector, "--ignore-not-found", what="remove the namespaces")

    @property
    def collector(self) -> str:
        """Address of the collector, the CONDOR_HOST of pilots."""
        if self.settings.kubeconfig is None:
            return COLLECTOR_SERVICE_ADDRESS
        query = ("get", "service", CENTRAL_MANAGER, "-n", POOL_NAMESPACE, "-o", "jsonpath={.spec.clusterIP}")
        return self._kubectl(*query, what="ask for the central manager's address").strip()

    def _deploy(self, name: str) -> None:
        """Create the pod `name`; replace one that differs or is unhealthy."""
        values = {"pool_domain": POOL_DOMAIN, "image": self.image, "collector": self._collector_value(name)}
        security = "use security:recommended\n" if self.settings.htcondor == HTCONDOR else _OLD_SECURITY
        files = {"00-security": security, "start.sh": (FOLDER / "start.sh").read_text()}
        for number, source in (("10", "common"), ("20", name)):
            text = (FOLDER / f"{source}.conf").read_text()
            files[f"{number}-{source}.conf"] = Template(text).safe_substitute(values)
        manifest = (FOLDER / f"{name}.yaml").read_text()
        version = hashlib.sha256(json.dumps([files, manifest, values]).encode()).hexdigest()[:16]
        pod = self._pod(name)
        if pod is not None:
            annotations = pod["metadata"].get("annotations", {})
            healthy = (
                pod["status"].get("phase") in {"Pending", "Running"} and "deletionTimestamp" not in pod["metadata"]
            )
            if healthy and annotations.get("k8spilot.lab/version") == version:
                return
            force = ("--grace-period=0", "--force", "--wait=true")
            self._kubectl("delete", "pod", name, "-n", POOL_NAMESPACE, *force, what=f"remove the old {name}")
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": POOL_NAMESPACE},
            "data": files,
        }
        text = Template(manifest).substitute(values, version=version)
        if self.settings.kubeconfig is not None:
            text = text.replace("  clusterIP: \n", "")
        self._apply(_dump(config) + "---\n" + text, f"create {name}")

    def _collector_value(self, name: str) -> str:
        if self.settings.kubeconfig is not None and name == CENTRAL_MANAGER:
            return ""  # the cluster chooses
        return self.collector

    def _wait(self, name: str) -> None:
        """Return when the pod is Ready; raise LabError with what Kubernetes says of it otherwise."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            pod = self._pod(name)
            conditions = pod["status"].get("conditions", []) if pod else []
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                return
            if time.monotonic() > deadline:
                raise LabError(f"the pod {POOL_NAMESPACE}/{name} is not ready after {PATIENCE_S} s: {_why(pod)}")
            time.sleep(0.2)

    def _token(self, identity: str, rights: tuple[str, ...]) -> str:
        options = [option for right in rights for option in ("-authz", right)]
        command = ["condor_token_create", "-identity", f"{identity}@{POOL_DOMAIN}", *options]
        where = ("exec", "-n", POOL_NAMESPACE, CENTRAL_MANAGER, "--")
        deadline = time.monotonic() + PATIENCE_S
        while True:  # until the container runs and has put the key in its place; no daemon is needed for it
            try:
                return self._kubectl(*where, *command, what=f"make a token for {identity}")
            except LabError as problem:
                shell.check_cancelled()
                if time.monotonic() > deadline:
                    raise LabError(f"{problem}; its pod: {_why(self._pod(CENTRAL_MANAGER))}") from problem
            time.sleep(0.3)

    def _registries(self, namespace: str) -> dict[str, Any]:
        # The lab's own address without a port: tests start more registries there.
        address = self.settings.registry or NODE_ADDRESS
        drop_in = f'# Plain HTTP: registries of a test bed.\n[[registry]]\nlocation = "{address}"\ninsecure = true\n'
        if self.settings.kubeconfig is not None and self.settings.registry is None:
            drop_in = "# The cluster's registries speak for themselves.\n"
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "registries", "namespace": namespace},
            "data": {"lab.conf": drop_in},
        }

    def _pod(self, name: str) -> dict[str, Any] | None:
        query = ("get", "pod", name, "-n", POOL_NAMESPACE, "--ignore-not-found", "-o", "json")
        answer = self._kubectl(*query, what=f"ask for the pod {name}")
        return json.loads(answer) if answer.strip() else None

    def _exists(self, kind: str, name: str, namespace: str = POOL_NAMESPACE) -> bool:
        query = ("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "name")
        return bool(self._kubectl(*query, what=f"ask for the {kind} {name}").strip())

    def _apply(self, text: str, what: str) -> None:
        self._kubectl("apply", "-f", "-", stdin=text, what=what)

    def _kubectl(self, *arguments: str, what: str, stdin: str | None = None) -> str:
        program, config = node.kubectl(self.settings), self.settings.admin_kubeconfig
        return kubectl.perform(program, config, arguments, what=what, stdin=stdin, timeout=200)


def _secret(name: str, data: dict[str, bytes], namespace: str = POOL_NAMESPACE) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": encoded,
    }


def _dump(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def _why(pod: dict[str, Any] | None) -> str:
    if pod is None:
        return "it does not exist"
    for status in pod["status"].get("containerStatuses", []):
        waiting = status.get("state", {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason')}: {waiting.get('message', 'no message')}"
    conditions = [c.get("message") for c in pod["status"].get("conditions", []) if c["status"] != "True"]
    return next((message for message in conditions if message), "Kubernetes says no reason")
