"""`k8spilot check --manifest`: what is wrong with a pilot is told before there is a cluster."""

import copy
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.cli import main
from k8spilot.common.errors import SettingsError
from k8spilot.preflight.finding import Finding, Verdict
from k8spilot.preflight.manifest import manifest_findings

Json = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = [
    *yaml.safe_load_all((MANIFESTS / "serviceAccount.yaml").read_text()),
    *yaml.safe_load_all((MANIFESTS / "pilot-pod.yaml").read_text()),
    {
        "kind": "ConfigMap",
        "metadata": {"name": "k8spilot-pilot", "namespace": "pilots"},
        "data": {"GLIDEIN_Site": "S", "GLIDEIN_ResourceName": "R", "CONDOR_HOST": "cm.example"},
    },
]


class Manifest:
    """The base with an overlay's settings, to be changed."""

    def __init__(self) -> None:
        self.objects: list[Json] = copy.deepcopy(BASE)
        for one in self.objects:
            one["metadata"]["namespace"] = "pilots"

    def of(self, kind: str) -> Json:
        return next(one for one in self.objects if one["kind"] == kind)

    @property
    def spec(self) -> Json:
        found: Json = self.of("Pod")["spec"]
        return found

    @property
    def pilot(self) -> Json:
        found: Json = self.spec["containers"][0]
        return found

    @property
    def data(self) -> Json:
        found: Json = self.of("ConfigMap")["data"]
        return found

    def drop(self, kind: str) -> None:
        self.objects.remove(self.of(kind))

    def text(self) -> str:
        return yaml.safe_dump_all(self.objects)

    def bad(self) -> list[Finding]:
        return [one for one in manifest_findings(self.text()) if one.verdict is not Verdict.GOOD]


def test_the_projects_own_manifests_are_right() -> None:
    findings = manifest_findings(Manifest().text())
    assert {one.verdict for one in findings} == {Verdict.GOOD}
    assert {one.check for one in findings} == {"Pod/pilot", "rights", "settings", "images"}


def secret_volume(manifest: Manifest) -> None:
    volume = next(one for one in manifest.spec["volumes"] if one["name"] == "pool-token")
    volume["secret"].pop("optional")


def no_limits(manifest: Manifest) -> None:
    manifest.spec["initContainers"][1]["resources"]["limits"]["memory"] = "lots"


def no_token(manifest: Manifest) -> None:
    mounts = manifest.pilot["volumeMounts"]
    mounts[:] = [one for one in mounts if one["name"] != "api-access"]


WRONG: list[tuple[Callable[[Manifest], object], Verdict, str]] = [
    (lambda one: one.spec.pop("shareProcessNamespace"), Verdict.FAULT, "set shareProcessNamespace: true"),
    (lambda one: one.spec["initContainers"].reverse(), Verdict.FAULT, "before payload"),
    (lambda one: one.data.pop("GLIDEIN_Site"), Verdict.FAULT, "GLIDEIN_Site must be set"),
    (lambda one: one.data.update(MEMORY="much"), Verdict.FAULT, "MEMORY is 'much', but"),
    (lambda one: one.data.update(GLIDEIN_Start_Extra="(("), Verdict.FAULT, "GLIDEIN_Start_Extra is"),
    (lambda one: one.data.update(K8SPILOT_VACATE_SECONDS="600"), Verdict.FAULT, "terminationGracePeriodSeconds to 640"),
    (
        lambda one: one.data.update(K8SPILOT_VACATE_SECOND="6"),
        Verdict.WARNING,
        "K8SPILOT_VACATE_SECOND is not a setting",
    ),
    (lambda one: one.drop("ConfigMap"), Verdict.WARNING, "ConfigMap k8spilot-pilot is not in the manifest"),
    (lambda one: one.of("Role")["rules"][0]["verbs"].remove("patch"), Verdict.FAULT, "lacks patch pods; add it"),
    (lambda one: one.of("Role")["rules"].pop(), Verdict.WARNING, "lacks create events"),
    (lambda one: one.of("RoleBinding")["subjects"].clear(), Verdict.WARNING, "binds no role to the service account"),
    (
        lambda one: one.of("Role")["rules"][0].update(resourceNames=["other"]),
        Verdict.FAULT,
        "lacks get pods, list pods, watch pods, patch pods",
    ),
    (secret_volume, Verdict.WARNING, "the Secret pool-token is required and not in the manifest"),
    (lambda one: one.spec["containers"][0].update(name="other"), Verdict.FAULT, "it has no container pilot"),
    (lambda one: one.spec.update(activeDeadlineSeconds=60), Verdict.WARNING, "GLIDEIN_Max_Walltime"),
    (lambda one: one.pilot["securityContext"].update(runAsUser=1000), Verdict.FAULT, "set runAsUser: 0 for pilot"),
    (
        lambda one: one.pilot["securityContext"]["capabilities"]["add"].remove("KILL"),
        Verdict.FAULT,
        "add the capabilities KILL in",
    ),
    (
        lambda one: one.data.update(NUM_CPUS="64", MEMORY="999999"),
        Verdict.FAULT,
        "NUM_CPUS promises 64 CPUs, but the container payload has the limit cpu: 1",
    ),
    (
        lambda one: one.spec["initContainers"][1]["resources"].pop("limits"),
        Verdict.FAULT,
        "set resources.limits.cpu and .memory of the container payload",
    ),
    (no_token, Verdict.FAULT, "mount a projected serviceAccountToken at"),
    (lambda one: one.data.update(K8SPILOT_METRICS_PORT="0"), Verdict.FAULT, "remove startupProbe"),
    (lambda one: one.of("RoleBinding")["metadata"].update(namespace="b"), Verdict.WARNING, "binds no role to the"),
]


@pytest.mark.parametrize(("change", "verdict", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_what_is_wrong_with_a_manifest_is_told(
    change: Callable[[Manifest], object], verdict: Verdict, words: str
) -> None:
    manifest = Manifest()
    change(manifest)
    assert [one for one in manifest.bad() if one.verdict is verdict and words in one.words], manifest.bad()


def test_the_pod_of_a_job_and_of_a_deployment_is_found() -> None:
    for kind in ("Job", "Deployment"):
        manifest = Manifest()
        pod = manifest.of("Pod")
        manifest.drop("Pod")
        template = {"metadata": {"labels": {}}, "spec": pod["spec"]}
        owner: Json = {"template": template, "backoffLimit": 2**31 - 1}
        manifest.objects.append({"kind": kind, "metadata": {"name": "pilots"}, "spec": owner})
        assert manifest.bad() == []
        template["spec"]["initContainers"][1].pop("restartPolicy")
        (fault,) = manifest.bad()
        assert (fault.check, fault.verdict) == (f"{kind}/pilots", Verdict.FAULT)


def test_a_job_that_takes_binds_for_failures_is_a_fault() -> None:
    manifest = Manifest()
    pod = manifest.of("Pod")
    manifest.drop("Pod")
    job = {"kind": "Job", "metadata": {"name": "pilots"}, "spec": {"template": {"spec": pod["spec"]}}}
    manifest.objects.append(job)
    (fault,) = manifest.bad()
    assert "set backoffLimit: 2147483647 (it is 6), or restartPolicy: Never" in fault.words
    pod["spec"]["restartPolicy"] = "Never"
    assert manifest.bad() == []


def test_a_list_as_kubectl_get_prints_it_is_read() -> None:
    manifest = Manifest()
    listed = json.dumps({"kind": "List", "items": manifest.objects})
    assert {one.verdict for one in manifest_findings(listed)} == {Verdict.GOOD}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b: c", "is not YAML"),
        ("just words", "without a kind"),
        ("kind: ConfigMap\nmetadata: {name: x}", "has no Pod"),
    ],
)
def test_what_is_no_manifest_is_told_so(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        manifest_findings(text)


def test_a_limit_that_is_no_quantity_is_told() -> None:
    manifest = Manifest()
    no_limits(manifest)
    with pytest.raises(SettingsError, match="the invalid quantity 'lots'"):
        manifest.bad()


def test_what_is_in_the_cluster_may_set_what_the_manifest_does_not() -> None:
    manifest = Manifest()
    manifest.drop("ConfigMap")
    assert {one.verdict for one in manifest.bad()} == {Verdict.WARNING}


MISSHAPEN: list[Callable[[Manifest], object]] = [
    lambda one: one.spec.update(containers="x"),
    lambda one: one.spec.update(terminationGracePeriodSeconds="120"),
    lambda one: one.pilot["env"].append({"name": "X", "valueFrom": None}),
    lambda one: one.of("Role").update(rules=["x"]),
    lambda one: one.of("RoleBinding").pop("roleRef"),
]


@pytest.mark.parametrize("change", MISSHAPEN)
def test_what_kubernetes_would_not_take_is_told_in_a_sentence(change: Callable[[Manifest], object]) -> None:
    manifest = Manifest()
    change(manifest)
    with pytest.raises(SettingsError, match="an object of an invalid form"):
        manifest.bad()


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["k8spilot", "check", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    return caught.value.code


def test_the_exit_status_and_the_output_tell_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    manifest = Manifest()
    (tmp_path / "good.yaml").write_text(manifest.text())
    manifest.spec.pop("shareProcessNamespace")
    (tmp_path / "bad.yaml").write_text(manifest.text())
    assert call(monkeypatch, "--manifest", str(tmp_path / "good.yaml")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "fit: no faults, no warnings"
    assert call(monkeypatch, "--manifest", str(tmp_path / "bad.yaml"), "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["fit"] is False
    assert [one["words"] for one in answer["findings"] if one["verdict"] == "fault"] == [
        "set shareProcessNamespace: true; otherwise jobs cannot be signalled and measured"
    ]
    assert call(monkeypatch, "--manifest", str(tmp_path / "none.yaml")) == 2
    assert re.match(r"k8spilot: the manifest .*none.yaml cannot be read", capsys.readouterr().err)


def test_outside_a_pod_check_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert call(monkeypatch) == 2
    assert "POD_NAME" in capsys.readouterr().out


def test_the_values_of_the_example_are_faults_until_they_are_replaced() -> None:
    example = Manifest()
    example.data.update(
        GLIDEIN_Site="Example-Site",
        GLIDEIN_ResourceName="Example-Resource",
        CONDOR_HOST="cm.example.org",
        K8SPILOT_DEFAULT_IMAGE="docker://registry.example.org/default:latest",
    )
    for container in (*example.spec["initContainers"], example.pilot):
        container["image"] = "registry.example.org/k8spilot:0.1.0"
    bad = [one.words for one in example.bad() if one.verdict is Verdict.FAULT]
    names = ("GLIDEIN_Site", "GLIDEIN_ResourceName", "CONDOR_HOST", "K8SPILOT_DEFAULT_IMAGE")
    assert [words.split()[0] for words in bad if "is a placeholder" in words] == list(names), bad
    assert [words for words in bad if words.startswith("replace the image registry.example.org/k8spilot:0.1.0,")]
    assert len(bad) == len(names) + 1


def test_each_value_of_the_overlay_in_the_repository_that_must_be_replaced_is_a_fault() -> None:
    (kustomization,) = yaml.safe_load_all((MANIFESTS.parent / "overlays/example/kustomization.yaml").read_text())
    manifest = Manifest()
    literals = [text.partition("=") for text in kustomization["configMapGenerator"][0]["literals"]]
    manifest.data.update({name: value for name, _, value in literals})
    for container in (*manifest.spec["initContainers"], manifest.pilot):
        container["image"] = kustomization["images"][0]["newName"]
    assert len([one for one in manifest.bad() if one.verdict is Verdict.FAULT]) == 5
