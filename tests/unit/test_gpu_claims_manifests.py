"""ResourceClaims of GPUs in manifests: checks, several payload containers, the provisioner, the components."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.cli.slots import with_slots
from k8spilot.common.errors import SettingsError
from k8spilot.gpu.discovery.claims import allocated, shared_words
from k8spilot.gpu.monitoring.sampler_server import UID as UID_OF_SAMPLERS
from k8spilot.gpu.monitoring.sampler_volume import SIDECAR, holders, volume_at
from k8spilot.preflight.cluster import claim_warnings
from k8spilot.preflight.finding import Verdict
from k8spilot.preflight.manifest import manifest_findings
from k8spilot.preflight.rights import excess
from k8spilot.provisioner.limits import TemplateError
from k8spilot.provisioner.templates.pod_template import source_names, template_of
from k8spilot.settings import Settings
from tests.unit.test_cli_slots import built, copied_overlays, payloads, pods, rendered, variables
from tests.unit.test_gpu_claims import GPUS, UID, claim, result
from tests.unit.test_preflight_gpus import with_component
from tests.unit.test_preflight_manifest import Manifest

Json = dict[str, Any]
COMPONENT = Path(__file__).parents[2] / "components/gpu-dra"


# --- checks ---


def test_a_claim_of_several_pods_is_told_of_with_the_remedy() -> None:
    found = allocated(claim(result("gpu-3"), users=(UID, "77aa-other")), UID)
    assert found is not None
    (words,) = shared_words({"gpu": found})
    assert "the claim gpu is also for the pod pod-77aa" in words
    assert "use resourceClaimTemplateName" in words
    assert list(shared_words({"gpu": GPUS})) == []


def test_a_claim_that_cannot_be_read_is_told_of() -> None:
    pod = {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}}
    settings = Settings(pod_name="a", pod_namespace="pilots", services=("engine",))
    (words,) = claim_warnings(settings, pod, {})
    assert "let the service account get resourceclaims in the namespace pilots" in words
    assert list(claim_warnings(settings, pod, {"gpu": GPUS})) == []


def test_the_right_of_the_component_is_not_too_much_and_others_of_its_group_are() -> None:
    (role, _) = yaml.safe_load_all((COMPONENT / "rights.yaml").read_text())
    assert list(excess(role["rules"])) == []
    more = [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "update"]}]
    assert list(excess(more)) == ["update resourceclaims.resource.k8s.io"]
    other = [{"apiGroups": ["example.org"], "resources": ["pods"], "verbs": ["get"]}]
    assert list(excess(other)) == ["get pods.example.org"]


def claiming() -> Manifest:
    """The base with the component."""
    manifest = with_component(COMPONENT)
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    for name in component["resources"]:
        manifest.objects += yaml.safe_load_all((COMPONENT / name).read_text())
    return manifest


def test_the_component_has_no_fault() -> None:
    assert claiming().bad() == []


def without_right(manifest: Manifest) -> None:
    manifest.objects = [one for one in manifest.objects if one["metadata"]["name"] != "k8spilot-gpu-claims"]


def without_user(manifest: Manifest) -> None:
    del manifest.spec["initContainers"][1]["resources"]["claims"]


def sharing(manifest: Manifest) -> None:
    """A Deployment whose pods share one claim."""
    pod = manifest.of("Pod")
    manifest.objects.remove(pod)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "k8spilot-gpu"}]
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    manifest.objects.append({"kind": "Deployment", "metadata": pod["metadata"], "spec": {"template": template}})
    manifest.of("ResourceClaimTemplate")["kind"] = "ResourceClaim"
    manifest.of("ResourceClaim")["spec"] = manifest.of("ResourceClaim")["spec"]["spec"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_right, "lacks get resourceclaims"),
        (
            lambda one: one.drop("ResourceClaimTemplate"),
            "the ResourceClaimTemplate k8spilot-gpu is required and not in",
        ),
        (without_user, "add the claim gpu to resources.claims of payload"),
        (sharing, "otherwise jobs of all pods of the Deployment use the devices of one ResourceClaim"),
    ],
)
def test_what_is_wrong_with_claims_is_told_of_a_manifest(change: Any, words: str) -> None:
    manifest = claiming()
    change(manifest)
    findings = [one for one in manifest_findings(manifest.text()) if one.verdict is not Verdict.GOOD]
    assert [one.verdict for one in findings] == [Verdict.WARNING]
    assert words in findings[0].words


# --- several payload containers ---


def with_claim(count: int = 1, **claims: Any) -> str:
    """The manifest of the example with the component."""
    documents = list(yaml.safe_load_all(rendered()))
    spec = pods(documents)[0]
    payload = next(one for one in spec["initContainers"] if one["name"] == "payload")
    payload["resources"]["claims"] = [{"name": "gpu"}]
    spec["resourceClaims"] = [{"name": "gpu", **(claims or {"resourceClaimTemplateName": "k8spilot-gpu"})}]
    for name in ("claim.yaml", "rights.yaml"):
        documents += yaml.safe_load_all((COMPONENT / name).read_text())
    for one in documents:
        one["metadata"].setdefault("namespace", "pilots")
        if one["kind"] == "ResourceClaimTemplate":
            one["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = count
    return yaml.safe_dump_all(documents)


def test_each_payload_container_gets_a_claim_of_its_own() -> None:
    text = with_slots(with_claim(2), 4)
    assert [one["resources"]["claims"] for one in payloads(text)] == [[{"name": f"gpu-{at_}"}] for at_ in (1, 2, 3, 4)]
    (spec,) = pods(list(yaml.safe_load_all(text)))
    names = {"resourceClaimTemplateName": "k8spilot-gpu"}
    assert spec["resourceClaims"] == [{"name": f"gpu-{at_}", **names} for at_ in (1, 2, 3, 4)]
    told = variables(spec["containers"][0])
    assert (told["K8SPILOT_GPU_CONTAINERS"], told["K8SPILOT_CONTAINER_GPUS"]) == ("4", "2")
    assert [one.words for one in manifest_findings(text) if one.verdict is not Verdict.GOOD] == []


def test_the_last_payload_containers_can_have_the_claims_alone() -> None:
    text = with_slots(with_claim(), 4, gpu_containers=1)
    assert [one["resources"].get("claims") for one in payloads(text)] == [None, None, None, [{"name": "gpu-4"}]]
    assert [one.words for one in manifest_findings(text) if one.verdict is not Verdict.GOOD] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            lambda: with_claim(resourceClaimName="k8spilot-gpu"),
            "has the claim gpu, and the manifest does not say how many",
        ),
        (lambda: with_claim().replace("gpu.nvidia.com", "gpu.example.com"), r"has the claim gpu \(gpu\.example\.com\)"),
        (
            lambda: (
                with_claim(resourceClaimName="k8spilot-gpu")
                .replace("kind: ResourceClaimTemplate", "kind: ResourceClaim")
                .replace("spec:\n  spec:\n    devices:\n      requests:", "spec:\n    devices:\n      requests:")
            ),
            "use resourceClaimTemplateName",
        ),
    ],
)
def test_claims_that_cannot_be_repeated_are_refused_with_the_reason(text: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        with_slots(text(), 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entries", "is_wrong"),
    [
        ([[{"name": "gpu-1"}], [{"name": "gpu-1"}]], True),
        ([[{"name": "gpu-1"}], [{"name": "gpu-1", "request": "gpu"}]], True),
        ([[{"name": "gpu-1", "request": "gpu"}], [{"name": "gpu-1", "request": "gpu"}]], True),
        ([[{"name": "gpu-1", "request": "gpu"}], [{"name": "gpu-1", "request": "more"}]], False),
        ([[{"name": "gpu-1"}], [{"name": "gpu-2"}]], False),
    ],
)
def test_two_payload_containers_with_one_gpu_are_a_fault(entries: list[list[Json]], is_wrong: bool) -> None:
    documents = list(yaml.safe_load_all(with_slots(with_claim(), 2)))
    (spec,) = pods(documents)
    found = [one for one in spec["initContainers"] if one["name"].startswith("payload-")]
    for each, wanted in zip(found, entries, strict=True):
        each["resources"]["claims"] = wanted
    findings = [one.words for one in manifest_findings(yaml.safe_dump_all(documents)) if one.verdict is Verdict.FAULT]
    assert any("give payload-1 and payload-2 a claim each" in words for words in findings) == is_wrong


# --- the provisioner ---


def cron_job(manifest: Manifest) -> Json:
    """A pod template of the provisioner, from the pod of a manifest."""
    pod = manifest.of("Pod")
    template = {"metadata": {}, "spec": pod["spec"]}
    metadata = {"name": "gpu", "namespace": "pilots", "annotations": {"k8spilot/max-pilots": "1"}}
    return {"metadata": metadata, "spec": {"suspend": True, "jobTemplate": {"spec": {"template": template}}}}


async def made(manifest: Manifest) -> int:
    found = cron_job(manifest)
    wanted = set(source_names(found))
    sources = [one for one in manifest.objects if (one["kind"], one["metadata"]["name"]) in wanted]
    template = await template_of(found, sources, "cm.example", time.time())
    (kind,) = template.kinds
    return kind.room.gpus


async def test_the_provisioner_counts_the_gpus_of_a_claim() -> None:
    manifest = claiming()
    assert ("ResourceClaimTemplate", "k8spilot-gpu") in list(source_names(cron_job(manifest)))
    assert await made(manifest) == 1
    manifest.of("ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 3
    assert await made(manifest) == 3


async def test_a_template_whose_claim_is_not_known_is_refused_with_the_reason() -> None:
    manifest = claiming()
    manifest.drop("ResourceClaimTemplate")
    with pytest.raises(TemplateError, match="the number of devices of its claim gpu is not known"):
        await made(manifest)


# --- the components as kustomize renders them ---


def kustomized(folder: Path, *components: str, **fields: Any) -> str:
    """The manifest that kustomize renders of an overlay with components."""
    root = Path(__file__).parents[2]
    overlay = {
        "namespace": "pilots",
        "resources": [os.path.relpath(root / "overlays/example", folder)],
        "components": [os.path.relpath(root / "components" / one, folder) for one in components],
        **fields,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return built(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["job", "deployment", "pilot-template"])
def test_what_makes_pods_names_the_template_also_with_a_prefix(tmp_path: Path, kind: str) -> None:
    documents = list(yaml.safe_load_all(kustomized(tmp_path, "gpu-dra", kind, namePrefix="a-")))
    (template,) = [one for one in documents if one["kind"] == "ResourceClaimTemplate"]
    (spec,) = pods(documents)
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": template["metadata"]["name"]}]


def test_a_factory_has_templates_for_two_kinds_of_claims_as_the_page_says(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    factory = copied_overlays(tmp_path) / "factory-example"
    gpu = factory / "gpu/kustomization.yaml"
    gpu.write_text(gpu.read_text().replace("components/gpu\n", "components/gpu-dra\n"))
    (factory / "mig").mkdir()
    page = (root / "docs/how-to/gpu-claims.md").read_text().partition("\n## 5. ")[2]
    (factory / "mig/kustomization.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    claim = (root / "components/gpu-dra/claim.yaml").read_text().replace("k8spilot-gpu", "k8spilot-mig")
    (factory / "mig/claim.yaml").write_text(claim)
    whole = factory / "kustomization.yaml"
    whole.write_text(whole.read_text().replace(" gpu, large,", " gpu, mig, large,"))
    documents = list(yaml.safe_load_all(built(factory)))
    named = {
        claim["resourceClaimTemplateName"] for spec in pods(documents) for claim in spec.get("resourceClaims") or ()
    }
    assert named == {"k8spilot-gpu", "k8spilot-mig"}
    assert named == {one["metadata"]["name"] for one in documents if one["kind"] == "ResourceClaimTemplate"}
    assert sum(one["kind"] == "Role" and one["metadata"]["name"] == "k8spilot-gpu-claims" for one in documents) == 1


@pytest.mark.parametrize("others", [(), ("restricted",)])
def test_the_pod_names_its_template_also_with_a_prefix(tmp_path: Path, others: tuple[str, ...]) -> None:
    text = kustomized(tmp_path, *others, "gpu-dra", "gpu-dra-metrics", namePrefix="a-")
    documents = list(yaml.safe_load_all(text))
    (template,) = [one for one in documents if one["kind"] == "ResourceClaimTemplate"]
    (spec,) = pods(documents)
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": template["metadata"]["name"]}]
    assert template["metadata"]["name"] == "a-k8spilot-gpu"
    assert [one.words for one in manifest_findings(text) if one.verdict is not Verdict.GOOD] == []


def test_the_sidecar_has_the_claims_of_all_payload_containers(tmp_path: Path) -> None:
    cpus = [{"op": "replace", "path": "/spec/initContainers/1/resources/limits/cpu", "value": "2"}]
    patches = [{"target": {"kind": "Pod"}, "patch": json.dumps(cpus)}]
    text = with_slots(kustomized(tmp_path, "gpu-dra", "gpu-dra-metrics", patches=patches), 2)
    (spec,) = pods(list(yaml.safe_load_all(text)))
    (sidecar,) = [one for one in spec["initContainers"] if one["name"] == SIDECAR]
    assert sidecar["resources"]["claims"] == [{"name": "gpu-1"}, {"name": "gpu-2"}]
    assert [one.words for one in manifest_findings(text) if one.verdict is not Verdict.GOOD] == []
    settings = Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",))
    volume = volume_at({"spec": spec}, settings.gpu_metrics, settings.payload_container)
    assert volume is not None
    assert holders({"spec": spec}, volume) == [SIDECAR, "pilot"]
    assert sidecar["securityContext"]["runAsUser"] == UID_OF_SAMPLERS


def test_another_container_with_the_claim_of_the_payload_container_is_told(tmp_path: Path) -> None:
    cpus = {"op": "replace", "path": "/spec/initContainers/1/resources/limits/cpu", "value": "2"}
    claim = {"op": "add", "path": "/spec/containers/0/resources/claims", "value": [{"name": "gpu"}]}
    text = kustomized(tmp_path, "gpu-dra", patches=[{"target": {"kind": "Pod"}, "patch": json.dumps([cpus, claim])}])
    with pytest.raises(SettingsError, match="the container pilot has the claim gpu of the payload container, too"):
        with_slots(text, 2)
