"""`k8spilot slots`: a rendered manifest gets several payload containers, which share nothing but the pod."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from k8spilot.cli.main import app
from k8spilot.cli.slots import with_slots
from k8spilot.common.errors import SettingsError
from k8spilot.kube.resize import Room, room
from k8spilot.model.slot_sizes import Size
from k8spilot.preflight.finding import Verdict
from k8spilot.preflight.manifest import manifest_findings
from k8spilot.preflight.pod_spec import shape_faults
from k8spilot.settings import Settings

ROOT = Path(__file__).parents[2]
PLACEHOLDERS = {"cm.example.org": "cm.lab", "Example-": "Lab-", "registry.example.org": "registry.lab"}


def built(folder: Path) -> str:
    """The manifest that kustomize builds of a folder, with values in the place of the placeholders."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not there")
    text = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    for before, after in PLACEHOLDERS.items():
        text = text.replace(before, after)
    return text


def copied_overlays(folder: Path) -> Path:
    """Copy the overlays, the base and the components into a folder; return the path of the overlays there."""
    for name in ("components", "overlays", "manifests"):
        shutil.copytree(ROOT / name, folder / name)
    return folder / "overlays"


def rendered(overlay: str = "example", *components: str, cpus: int = 4) -> str:
    """The manifest of an overlay of which nothing is a placeholder, with more CPUs."""
    documents = list(yaml.safe_load_all(built(ROOT / "overlays" / overlay)))
    for spec in pods(documents):
        payload = next(one for one in spec["initContainers"] if one["name"] == "payload")
        for kind in ("requests", "limits"):
            payload["resources"][kind] |= {"cpu": str(cpus), "memory": "4Gi", "ephemeral-storage": "16Gi"}
    return yaml.safe_dump_all(documents)


def pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specifications of pilots' pods."""
    kinds = ("Pod", "Job", "Deployment")
    templates = [one["spec"].get("template", one) for one in documents if one["kind"] in kinds]
    templates += [one["spec"]["jobTemplate"]["spec"]["template"] for one in documents if one["kind"] == "CronJob"]
    return [one["spec"] for one in templates if "initContainers" in one["spec"]]


def payloads(text: str) -> list[dict[str, Any]]:
    (spec,) = pods(list(yaml.safe_load_all(text)))
    return [one for one in spec["initContainers"] if one["name"].startswith("payload")]


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["example", "example-job"])
@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("equal", [False, True])
def test_the_result_has_no_fault(overlay: str, number: int, equal: bool) -> None:
    findings = manifest_findings(with_slots(rendered(overlay), number, equal=equal))
    assert [finding.words for finding in findings if finding.verdict is not Verdict.GOOD] == []


@pytest.mark.slow
def test_only_the_pods_of_the_named_object_get_several_containers() -> None:
    documents = list(yaml.safe_load_all(with_slots(rendered("factory-example"), 4, only="cpu")))
    number = {
        one["metadata"]["name"]: sum(
            part["name"].startswith("payload")
            for part in one["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"]
        )
        for one in documents
        if one["kind"] == "CronJob"
    }
    assert number == {"cpu": 4, "gpu": 1, "large": 1, "restricted": 1}
    with pytest.raises(SettingsError, match="no object cpus whose pod has an init container payload"):
        with_slots(rendered("factory-example"), 4, only="cpus")


@pytest.mark.slow
def test_the_site_with_three_templates_has_no_fault() -> None:
    findings = manifest_findings(rendered("factory-example"))
    assert [finding.words for finding in findings if finding.verdict is not Verdict.GOOD] == []


def test_each_payload_container_has_a_share_and_a_user_and_folders_of_its_own() -> None:
    found = payloads(with_slots(rendered(), 4))
    assert [one["name"] for one in found] == ["payload-1", "payload-2", "payload-3", "payload-4"]
    assert [one["securityContext"]["runAsUser"] for one in found] == [64301, 64302, 64303, 64304]
    for one in found:
        assert one["resources"]["limits"] == {"cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": "4096Mi"}
        written = [mount for mount in one["volumeMounts"] if mount["mountPath"] != "/k8spilot/bin"]
        assert {mount["subPath"] for mount in written} == {one["name"]}


def test_a_pod_with_a_partitionable_slot_has_room_for_idle_containers_beside_jobs_that_use_all() -> None:
    documents = list(yaml.safe_load_all(with_slots(rendered(), 4)))
    (spec,) = pods(documents)
    pilot = {"cpu": 100, "memory": 256 + 3 * 32}
    assert spec["resources"]["requests"] == {
        "cpu": f"{4000 + 4 * 10 + pilot['cpu']}m",
        "memory": f"{4096 + 4 * 32 + pilot['memory']}Mi",
    }
    names = [f"payload-{number}" for number in range(1, 5)]
    found = room({"spec": spec}, names)
    assert found == Room(Size(4040, 4096 + 128), Size(4040, 4096 + 128))
    (container,) = (one for one in spec["containers"] if one["name"] == "pilot")
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["PAYLOAD_CPUS"] == "1"
    assert variables["PAYLOAD_MEMORY_MB"] == "1024"
    assert variables["K8SPILOT_SLOT_SIZES"] == "requested"


def test_a_partitionable_slot_adds_the_right_to_resize_pods_beside_the_others() -> None:
    documents = list(yaml.safe_load_all(with_slots(rendered(), 4)))
    kinds = ("Role", "RoleBinding")
    roles, bindings = ({one["metadata"]["name"]: one for one in documents if one["kind"] == kind} for kind in kinds)
    right = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]}
    assert roles["k8spilot-resize"]["rules"] == [right]
    assert right not in roles["k8spilot"]["rules"]
    binding = bindings["k8spilot-resize"]
    assert binding["roleRef"]["name"] == "k8spilot-resize"
    assert binding["subjects"] == bindings["k8spilot"]["subjects"]
    assert binding["metadata"].get("namespace") == bindings["k8spilot"]["metadata"].get("namespace")


def test_a_manifest_with_a_name_of_its_own_for_everything_has_the_right_to_resize_pods() -> None:
    documents = list(yaml.safe_load_all(with_slots(rendered().replace("k8spilot\n", "k8spilot-mine\n"), 2)))
    added = [one for one in documents if one["metadata"]["name"].endswith("-resize")]
    assert [one["kind"] for one in added] == ["Role", "RoleBinding"]
    assert added[1]["subjects"][0]["name"] == pods(documents)[0]["serviceAccountName"] == "k8spilot-mine"


def test_a_manifest_without_rights_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    documents = [one for one in yaml.safe_load_all(rendered()) if one["kind"] != "RoleBinding"]
    with_slots(yaml.safe_dump_all(documents), 2)
    assert "let it patch pods/resize" in caplog.text


def test_slots_of_equal_size_need_no_right_and_no_resources_of_the_pod() -> None:
    documents = list(yaml.safe_load_all(with_slots(rendered(), 2, equal=True)))
    assert "resources" not in pods(documents)[0]
    assert "resize" not in str(documents)


def with_gpus(count: int) -> str:
    """The manifest, with GPUs for the payload container."""
    documents = list(yaml.safe_load_all(rendered()))
    payload = next(one for one in pods(documents)[0]["initContainers"] if one["name"] == "payload")
    payload["resources"]["limits"]["nvidia.com/gpu"] = str(count)
    return yaml.safe_dump_all(documents)


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: str(one.get("value")) for one in container["env"]}


def test_gpus_are_divided_and_their_slots_are_of_equal_size() -> None:
    text = with_slots(with_gpus(4), 4)
    assert [one["resources"]["limits"]["nvidia.com/gpu"] for one in payloads(text)] == ["1"] * 4
    (spec,) = pods(list(yaml.safe_load_all(text)))
    assert "resources" not in spec, "the size of no container changes"
    told = variables(spec["containers"][0])
    assert (told["K8SPILOT_GPU_CONTAINERS"], told["K8SPILOT_CONTAINER_GPUS"]) == ("4", "1")
    assert "K8SPILOT_SLOT_SIZES" not in told
    assert [one.words for one in manifest_findings(text) if one.verdict is not Verdict.GOOD] == []


@pytest.mark.slow
def test_the_last_payload_container_can_have_all_gpus_and_the_others_share_a_partitionable_slot() -> None:
    text = with_slots(with_gpus(4), 4, gpu_containers=1)
    found = payloads(text)
    assert [one["resources"]["limits"].get("nvidia.com/gpu") for one in found] == [None, None, None, "4"]
    assert [variables(one).get("NVIDIA_VISIBLE_DEVICES") for one in found] == ["void", "void", "void", None]
    (spec,) = pods(list(yaml.safe_load_all(text)))
    assert room({"spec": spec}, ["payload-1", "payload-2", "payload-3"]) == Room(
        Size(3030, 3 * 1024 + 96), Size(3030, 3 * 1024 + 96)
    )
    assert variables(spec["containers"][0])["K8SPILOT_SLOT_SIZES"] == "requested"
    assert [one.words for one in manifest_findings(text) if one.verdict is not Verdict.GOOD] == []


@pytest.mark.parametrize(("gpus", "containers", "words"), [(0, 1, "has no GPUs"), (2, 5, "must be from 1 to 4")])
def test_containers_for_gpus_that_do_not_exist_are_refused(gpus: int, containers: int, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        with_slots(with_gpus(gpus) if gpus else rendered(), 4, gpu_containers=containers)


def test_a_payload_container_with_other_gpus_than_the_pilot_expects_is_found() -> None:
    text = with_slots(with_gpus(4), 4).replace('nvidia.com/gpu: "1"', 'nvidia.com/gpu: "2"', 1)
    words = " ".join(one.words for one in manifest_findings(text))
    assert "give payload-1 1 GPUs in place of 2" in words


SHARED = {
    "/tmp": r"set subPath: payload-2 for the volume tmp \(/tmp in payload-2\)",
    "/k8spilot": r"set subPath: payload-2 for the volume exchange \(/k8spilot in payload-2\)",
    "/var/lib/condor/execute/payload-2": "its subPath: payload-2 at /var/lib/condor/execute/payload-2 in payload-2",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", SHARED)
def test_what_two_slots_would_share_is_found(path: str) -> None:
    (spec,) = pods(list(yaml.safe_load_all(with_slots(rendered(), 2))))
    payload = next(one for one in spec["initContainers"] if one["name"] == "payload-2")
    next(mount for mount in payload["volumeMounts"] if mount["mountPath"] == path)["subPath"] = "payload-1"
    settings = Settings(
        pod_name="a", pod_namespace="a", services=("engine",), payload_containers=2, payload_uid=64301,
        payload_gid=64301,
    )  # fmt: skip
    assert SHARED[path].replace("\\", "") in " ".join(shape_faults({"spec": spec}, settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "number", "words"),
    [
        ("[", 2, "the manifest is not YAML"),
        ("kind: ConfigMap", 2, "no pod with an init container payload"),
        ("cpus", 3, "a limit of 4 CPUs, and 3 payload containers need a multiple of 3"),
        ("cpus", 8, "a limit of 4 CPUs, and 8 payload containers need a multiple of 8"),
        ("twice", 2, "no pod with an init container payload"),
        ("claims", 2, "the payload container has the claim gpu, and the manifest does not say how many GPUs"),
        ("parts", 2, r"mounts tmp at /tmp in a way that k8spilot does not repeat"),
        ("shm", 2, r"mounts tmp at /dev/shm in a way that k8spilot does not repeat"),
        ("volume", 2, "the pod has a volume shm already"),
        ("unlimited", 2, "the container pilot has no limits of cpu and memory"),
        ("own", 2, "the pod has resources of its own"),
        ("gpus", 4, "has nvidia.com/gpu: 2, which 4 payload containers cannot divide; set --gpu-containers"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_reason(text: str, number: int, words: str) -> None:
    match text:
        case "cpus":
            text = rendered()
        case "twice":
            text = with_slots(rendered(), 2)
        case "claims":
            documents = list(yaml.safe_load_all(rendered()))
            payload = next(one for one in pods(documents)[0]["initContainers"] if one["name"] == "payload")
            payload["resources"]["claims"] = [{"name": "gpu"}]
            text = yaml.safe_dump_all(documents)
        case "parts":
            text = rendered().replace("mountPath: /tmp\n", "mountPath: /tmp\n      subPath: a\n")
        case "shm":
            text = rendered().replace("mountPath: /tmp\n", "mountPath: /dev/shm\n")
        case "volume":
            text = rendered().replace("name: var-tmp\n", "name: shm\n")
        case "unlimited":
            documents = list(yaml.safe_load_all(rendered()))
            del pods(documents)[0]["containers"][0]["resources"]
            text = yaml.safe_dump_all(documents)
        case "own":
            text = rendered().replace(
                "  shareProcessNamespace: true\n", "  shareProcessNamespace: true\n  resources: {}\n"
            )
        case "gpus":
            text = with_gpus(2)
    with pytest.raises(SettingsError, match=words):
        with_slots(text, number)


def test_devices_that_are_no_gpus_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"the payload container has example\.org/fpga, which k8spilot does not"):
        with_slots(with_gpus(2).replace("nvidia.com/gpu", "example.org/fpga"), 2)


def test_a_text_that_looks_like_a_number_stays_a_text() -> None:
    """YAML 1.2, which kubectl reads, takes 1e3 for a number."""
    text = with_slots(rendered().replace("GLIDEIN_Site: Lab-Site", "GLIDEIN_Site: '1e3'"), 2)
    assert 'GLIDEIN_Site: "1e3"' in text


def test_the_command_reads_standard_input_and_writes_yaml() -> None:
    result = CliRunner().invoke(app, ["slots", "2"], input=rendered())
    assert result.exit_code == 0
    assert len(payloads(result.stdout)) == 2
