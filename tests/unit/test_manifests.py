"""The manifests: what they must have for the pilot's own checks and for Pod Security `baseline`.

That an API server accepts them, the end-to-end tests show.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.settings import Settings
from k8spilot.surroundings import VERBS, shape_faults

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"

BASELINE_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip


def load(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


@pytest.fixture
def pod() -> dict[str, Any]:
    (pod,) = load("pilot-pod.yaml")
    return pod


def containers(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]}


def test_the_pod_is_what_the_pilot_expects(pod: dict[str, Any]) -> None:
    settings = Settings(
        pod_name="pilot", pod_namespace="pilots", glidein_site="S", glidein_resource_name="R", condor_host="cm",
        payload_cpus=1, payload_memory_mb=1024,
    )  # fmt: skip
    assert shape_faults(pod, settings) == []


def test_payload_init_is_installed_before_the_payload_starts(pod: dict[str, Any]) -> None:
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["install", "payload"]


def test_nothing_is_privileged(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    for container in containers(pod).values():
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"]["drop"] == ["ALL"]
        assert set(security["capabilities"].get("add", ())) <= BASELINE_CAPABILITIES


def test_only_the_pilot_has_credentials(pod: dict[str, Any]) -> None:
    secret = {volume["name"] for volume in pod["spec"]["volumes"] if {"secret", "projected"} & set(volume)}
    for name, container in containers(pod).items():
        mounted = {mount["name"] for mount in container["volumeMounts"]} & secret
        assert mounted == (secret if name == "pilot" else set())


def test_the_payload_gets_what_it_is_promised(pod: dict[str, Any]) -> None:
    resources = containers(pod)["payload"]["resources"]
    assert resources["requests"] == resources["limits"]
    assert {"cpu", "memory", "ephemeral-storage"} == set(resources["limits"])


def test_one_image_name_runs_everything(pod: dict[str, Any]) -> None:
    assert {container["image"] for container in containers(pod).values()} == {"k8spilot"}


def test_the_rights_are_those_that_the_pilot_asks_for_and_no_more() -> None:
    account, role, binding = load("serviceAccount.yaml")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": list(VERBS)}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    # With a namespace here, kustomize would not see that this is the account above, and leave it as it is.
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"]}]
    assert load("pilot-pod.yaml")[0]["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_every_variable_of_the_manifests_is_a_setting(pod: dict[str, Any]) -> None:
    known = {str(field.validation_alias or f"K8SPILOT_{name.upper()}") for name, field in Settings.model_fields.items()}
    literals = [
        literal.partition("=")[0]
        for file in (MANIFESTS / "kustomization.yaml", ROOT / "overlays/example/kustomization.yaml")
        for generator in yaml.safe_load(file.read_text())["configMapGenerator"]
        for literal in generator["literals"]
    ]
    assert {*literals, *(one["name"] for one in containers(pod)["pilot"]["env"])} <= known
