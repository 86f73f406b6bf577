"""Findings of `k8spilot check` about GPUs, in a pod and in a manifest."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.preflight.finding import Verdict
from k8spilot.preflight.gpus import discovery_finding
from k8spilot.preflight.manifest import manifest_findings
from tests.unit.test_gpu_discovery_verdict import ONE, A, B, seen
from tests.unit.test_preflight_manifest import Manifest

COMPONENT = Path(__file__).parents[2] / "components/gpu"


def at(document: Any, path: str) -> tuple[Any, str]:
    """Return the target of a JSON pointer: the container of the last part, and that part."""
    *parts, last = [part.replace("~1", "/") for part in path.strip("/").split("/")]
    for part in parts:
        document = document[int(part) if isinstance(document, list) else part]
    return document, last


def with_component(folder: Path) -> Manifest:
    """The base with the pod's changes of a component, whose operations are applied by hand here."""
    manifest = Manifest()
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for one in yaml.safe_load(component["patches"][0]["patch"]):
        place, last = at(manifest.of("Pod"), one["path"])
        if one["op"] == "test":
            assert place[last] == one["value"]
        elif last == "-":
            place.append(one["value"])
        else:
            place[last] = one["value"]
    return manifest


def with_gpus() -> Manifest:
    """The base with the component."""
    return with_component(COMPONENT)


def payload(manifest: Manifest) -> Any:
    return manifest.spec["initContainers"][1]


def set_in(container: Any, name: str, value: str) -> None:
    container.setdefault("env", []).append({"name": name, "value": value})


def test_the_component_gives_the_payload_a_gpu_and_the_pilot_none() -> None:
    manifest = with_gpus()
    assert payload(manifest)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in manifest.pilot["env"]
    assert manifest.bad() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda one: set_in(payload(one), "NVIDIA_VISIBLE_DEVICES", "all"),
            "remove NVIDIA_VISIBLE_DEVICES from payload",
        ),
        (lambda one: set_in(payload(one), "NVIDIA_VISIBLE_DEVICES", A.uuid), "the device plugin sets it"),
        (lambda one: set_in(payload(one), "NVIDIA_VISIBLE_DEVICES", "void"), "which may hide the GPUs"),
        (lambda one: set_in(payload(one), "NVIDIA_DRIVER_CAPABILITIES", "compute"), "add utility to"),
        (lambda one: one.pilot["env"].pop(), "set NVIDIA_VISIBLE_DEVICES=void for pilot"),
        (
            lambda one: one.pilot["resources"]["limits"].update({"nvidia.com/gpu": 1}),
            "move the limit nvidia.com/gpu from pilot to payload",
        ),
        (
            lambda one: payload(one)["resources"]["limits"].update({"amd.com/gpu": 1}),
            "remove amd.com/gpu from payload",
        ),
    ],
)
def test_what_keeps_jobs_from_gpus_is_told_of_a_manifest(change: Any, words: str) -> None:
    manifest = with_gpus()
    change(manifest)
    (finding,) = manifest.bad()
    assert finding.verdict is Verdict.WARNING
    assert words in finding.words


@pytest.mark.parametrize("value", ["0", A.uuid])
def test_gpus_that_are_named_without_a_limit_are_told_of(value: str) -> None:
    manifest = Manifest()
    set_in(payload(manifest), "NVIDIA_VISIBLE_DEVICES", value)
    (finding,) = manifest.bad()
    assert finding.verdict is Verdict.WARNING
    assert f"remove NVIDIA_VISIBLE_DEVICES={value} from payload and give it a limit" in finding.words


@pytest.mark.parametrize("value", ["void", "none"])
def test_a_pod_without_gpus_may_close_the_payload_to_them(value: str) -> None:
    manifest = Manifest()
    set_in(payload(manifest), "NVIDIA_VISIBLE_DEVICES", value)
    assert manifest.bad() == []


def test_capabilities_with_utility_are_fine() -> None:
    manifest = with_gpus()
    set_in(payload(manifest), "NVIDIA_DRIVER_CAPABILITIES", "compute, utility")
    assert [one for one in manifest_findings(manifest.text()) if one.verdict is not Verdict.GOOD] == []


def test_a_check_in_a_pod_says_what_the_engine_has_found(tmp_path: Path) -> None:
    assert discovery_finding(tmp_path) is None
    GpuRecord().save(tmp_path)
    assert discovery_finding(tmp_path) is None
    GpuRecord(ONE, seen(A, visible=A.uuid)).save(tmp_path)
    finding = discovery_finding(tmp_path)
    assert finding is not None
    assert (finding.verdict, finding.check) == (Verdict.GOOD, "GPUs")
    GpuRecord(ONE, seen(B, visible=A.uuid)).save(tmp_path)
    finding = discovery_finding(tmp_path)
    assert finding is not None
    assert finding.verdict is Verdict.WARNING
