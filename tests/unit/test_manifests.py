"""The manifests: what they must have for the pilot's own checks and for Pod Security `baseline`.

That an API server accepts them, the end-to-end tests show.
"""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.cli import manifests
from k8spilot.preflight.finding import Verdict
from k8spilot.preflight.manifest import manifest_findings
from k8spilot.preflight.pod_spec import group_warnings, shape_faults, shape_warnings
from k8spilot.preflight.rights import RIGHTS, WISHES
from k8spilot.preflight.writable_volumes import FOLDERS
from k8spilot.settings import Settings, variables

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
    assert list(shape_warnings(pod, settings)) == []


def test_payload_init_is_installed_before_the_payload_starts(pod: dict[str, Any]) -> None:
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["install", "payload"]


def test_no_container_but_the_jobs_can_write_to_its_image(pod: dict[str, Any]) -> None:
    found = {name: one["securityContext"]["readOnlyRootFilesystem"] for name, one in containers(pod).items()}
    assert found == {"install": True, "pilot": True, "payload": False}
    mounted = {Path(one["mountPath"]) for one in containers(pod)["pilot"]["volumeMounts"]}
    assert set(FOLDERS) <= mounted


def test_a_component_makes_the_jobs_image_read_only_too(pod: dict[str, Any]) -> None:
    component = yaml.safe_load((ROOT / "components/read-only-payload/kustomization.yaml").read_text())
    (patch,) = component["patches"]
    test, replace = yaml.safe_load(patch["patch"])
    assert test["value"] == "payload"
    assert replace == {
        "op": "replace",
        "path": "/spec/initContainers/1/securityContext/readOnlyRootFilesystem",
        "value": True,
    }


def restricted(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with the operations of the component `restricted` (RFC 6902) done to it."""
    for change in yaml.safe_load((ROOT / "components/restricted/pod.yaml").read_text()):
        *path, last = change["path"].split("/")[1:]
        place: Any = pod
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        key = int(last) if isinstance(place, list) and last != "-" else last
        if change["op"] == "test":
            assert place[key] == change["value"]
        elif change["op"] == "remove":
            del place[key]
        elif change["op"] == "add" and isinstance(place, list):
            place.insert(len(place) if key == "-" else key, change["value"])
        else:
            assert change["op"] == "add" or isinstance(place, list) or key in place
            place[key] = change["value"]
    return pod


def test_where_nobody_is_root_the_pod_is_what_both_its_parts_expect(pod: dict[str, Any]) -> None:
    restricted(pod)
    settings = Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",))
    assert shape_faults(pod, settings) == []
    assert list(shape_warnings(pod, settings)) == []
    found = containers(pod)
    assert list(found) == ["install", "payload", "engine", "pilot"]
    mounts = {name: {Path(mount["mountPath"]) for mount in one["volumeMounts"]} for name, one in found.items()}
    assert set(FOLDERS) <= mounts["pilot"]
    assert Path("/tmp") in mounts["engine"]


def test_where_nobody_is_root_the_pod_is_valid_under_restricted(pod: dict[str, Any]) -> None:
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    spec = restricted(pod)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    users = set()
    for container in containers(pod).values():
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        users.add(security["runAsUser"])
    assert users == {101, 64100, 65534}


@pytest.mark.parametrize("is_restricted", [False, True])
def test_the_sampler_and_the_engine_alone_have_the_volume_of_the_figures(
    pod: dict[str, Any], is_restricted: bool
) -> None:
    settings = Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",))
    found = containers(restricted(pod) if is_restricted else pod)
    mounts = {
        name: mount["mountPath"]
        for name, one in found.items()
        for mount in one["volumeMounts"]
        if mount["name"] == "gpu-metrics"
    }
    assert mounts == {"engine" if is_restricted else "pilot": str(settings.gpu_metrics)}
    (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "gpu-metrics"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}


@pytest.mark.parametrize("is_restricted", [False, True])
def test_no_runtime_gives_the_pilot_gpus(pod: dict[str, Any], is_restricted: bool) -> None:
    found = containers(restricted(pod) if is_restricted else pod)
    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert {name for name, one in found.items() if void in one.get("env", ())} == found.keys() - {"install", "payload"}


def test_where_nobody_is_root_engine_and_htcondor_share_no_secret(pod: dict[str, Any]) -> None:
    restricted(pod)
    secret = {volume["name"] for volume in pod["spec"]["volumes"] if {"secret", "projected"} & set(volume)}
    found = {name: {mount["name"] for mount in one["volumeMounts"]} & secret for name, one in containers(pod).items()}
    assert found == {
        "install": set(),
        "payload": set(),
        "engine": {"api-access", "pull-secret"},
        "pilot": {"pool-token", "pool-password"},
    }


KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which has kustomize, is not installed")


def rendered(folder: Path, component: str, *others: str) -> list[dict[str, Any]]:
    """Return the objects that an overlay with a controller renders, from a copy of the base that lies elsewhere."""
    archive = io.BytesIO()
    manifests.write(archive)
    archive.seek(0)
    with tarfile.open(fileobj=archive) as members:
        members.extractall(folder, filter="data")
    overlay = folder / "k8spilot/overlays/mine"
    overlay.mkdir()
    text = {
        "namespace": "pilots",
        "resources": ["../example"],
        "components": [f"../../components/{one}" for one in (*others, component)],
        "images": [{"name": "k8spilot", "newName": "registry.example.org/k8spilot", "newTag": "0.1.0"}],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(text))
    command = ["kubectl", "kustomize", str(overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@KUBECTL
def test_the_component_relist_has_the_setting_and_the_right_for_it(tmp_path: Path) -> None:
    text = yaml.safe_dump_all(rendered(tmp_path, "relist"))
    assert "K8SPILOT_RELIST: 'true'" in text
    assert not [one.words for one in manifest_findings(text) if "RELIST" in one.words]


@pytest.mark.slow
@KUBECTL
@pytest.mark.parametrize(
    ("component", "kind", "policy"), [("job", "Job", "OnFailure"), ("deployment", "Deployment", "Always")]
)
def test_a_controller_has_the_whole_pod_of_an_overlay_as_its_template(
    tmp_path: Path, component: str, kind: str, policy: str
) -> None:
    objects = rendered(tmp_path, component, "restricted", "gpu")
    assert not [one for one in objects if one["kind"] == "Pod"]
    (controller,) = [one for one in objects if one["kind"] == kind]
    template = controller["spec"]["template"]
    spec = template["spec"]
    assert [one["name"] for one in spec["initContainers"]] == ["install", "payload", "engine"]
    assert spec["initContainers"][1]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {one["image"] for one in (*spec["initContainers"], *spec["containers"])} == {
        "registry.example.org/k8spilot:0.1.0"
    }
    assert spec["restartPolicy"] == policy
    assert controller["metadata"]["namespace"] == "pilots"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "k8spilot"
    if kind == "Deployment":
        assert template["metadata"]["labels"] == controller["spec"]["selector"]["matchLabels"]
    else:
        assert controller["spec"]["backoffLimit"] == 2**31 - 1
        assert controller["spec"]["completions"] > controller["spec"]["parallelism"]
    bad = [one for one in manifest_findings(yaml.safe_dump_all(objects)) if one.verdict is not Verdict.GOOD]
    (placeholder,) = [one.words for one in bad if one.check == f"{kind}/pilots"]
    assert placeholder.startswith("replace the image")


@KUBECTL
def test_the_example_of_a_job_renders() -> None:
    done = subprocess.run(["kubectl", "kustomize", ROOT / "overlays/example-job"], capture_output=True, check=True)
    (job,) = [one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "Job"]
    assert job["spec"]["parallelism"] == 10


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


def test_no_image_puts_its_jobs_into_groups_where_kubernetes_can_have_it_so(pod: dict[str, Any]) -> None:
    assert list(group_warnings(restricted(pod), "v1.33.0")) == []
    component = yaml.safe_load((ROOT / "components/merged-groups/kustomization.yaml").read_text())
    (change,) = yaml.safe_load(component["patches"][0]["patch"])
    assert change == {"op": "remove", "path": "/spec/securityContext/supplementalGroupsPolicy"}
    del pod["spec"]["securityContext"]["supplementalGroupsPolicy"]
    assert list(group_warnings(pod, "v1.32.9")) == list(group_warnings(pod, "")) == []
    (told,) = group_warnings(pod, "v1.33.0+vendor")
    assert "supplementalGroupsPolicy: Strict" in told


def test_one_image_name_runs_everything(pod: dict[str, Any]) -> None:
    assert {container["image"] for container in containers(pod).values()} == {"k8spilot"}


def test_the_rights_are_those_that_the_pilot_asks_for_and_no_more() -> None:
    account, role, binding = load("serviceAccount.yaml")
    needed = {**RIGHTS, **WISHES}
    wanted = [{"apiGroups": [""], "resources": [one], "verbs": list(verbs)} for one, verbs in needed.items()]
    assert role["rules"] == wanted
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    # With a namespace here, kustomize would not see that this is the account above, and leave it as it is.
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"]}]
    assert load("pilot-pod.yaml")[0]["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_every_variable_of_the_manifests_is_a_setting(pod: dict[str, Any]) -> None:
    literals = [
        literal.partition("=")[0]
        for file in (MANIFESTS / "kustomization.yaml", ROOT / "overlays/example/kustomization.yaml")
        for generator in yaml.safe_load(file.read_text())["configMapGenerator"]
        for literal in generator["literals"]
    ]
    own = {one["name"] for one in containers(pod)["pilot"]["env"]} - {"NVIDIA_VISIBLE_DEVICES"}
    assert {*literals, *own} <= set(variables())
