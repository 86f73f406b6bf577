"""`k8spilot check --manifest` of a factory's folder."""

import re
import subprocess
from functools import cache

import pytest

from k8spilot.preflight.finding import Verdict
from k8spilot.provisioner.templates.manifest_findings import template_findings
from tests.simulator.programs import CHECKOUT


@cache
def rendered() -> str:
    """The example's objects, with an image of the provisioner."""
    command = ["kubectl", "kustomize", str(CHECKOUT / "overlays/factory-example")]
    text: str = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return text.replace("registry.example.org/k8spilot-provisioner", "registry.site/k8spilot-provisioner")


def faults(text: str) -> dict[str, str]:
    """The faults of a manifest, by object."""
    return {one.check: one.words for one in template_findings(text) if one.verdict is not Verdict.GOOD}


def test_the_example_has_valid_annotations_and_settings_and_its_namespace_is_told() -> None:
    found = {one.check: one.words for one in template_findings(rendered())}
    assert found.keys() == {
        "CronJob/cpu",
        "CronJob/gpu",
        "CronJob/large",
        "CronJob/restricted",
        "Deployment/k8spilot-provisioner",
    }
    assert faults(rendered()) == {}
    assert found["Deployment/k8spilot-provisioner"].endswith("all is in the namespace pilots")


@pytest.mark.parametrize(
    ("before", "after", "about", "words"),
    [
        ('max-pilots: "50"', 'max-pilots: "two"', "CronJob/cpu", "k8spilot/max-pilots is 'two', but it must be"),
        ("max-pending: ", "max-pendign: ", "CronJob/", "the annotation k8spilot/max-pendign is unknown"),
        ('max-pilots: "50"', "max-pilots: 50", "CronJob/cpu", "k8spilot/max-pilots is no string; put it in quotes"),
        ("restartPolicy: OnFailure", "restartPolicy: Always", "CronJob/", "a pilot must come to its end; set Never"),
        ("suspend: true", "suspend: false", "CronJob/", "a CronJob that is not suspended; set suspend: true"),
        ("INTERVAL_SECONDS: ", "SHARE: ", "Deployment/", "K8SPILOT_SHARE is '5', but it must be a part"),
        ("registry.site/", "registry.example.org/", "Deployment/", "replace the image registry.example.org/"),
    ],
)
def test_a_fault_is_found_without_a_cluster(before: str, after: str, about: str, words: str) -> None:
    assert before in rendered()
    found = faults(rendered().replace(before, after))
    assert found
    assert all(one.startswith(about) for one in found)
    assert all(words in text for text in found.values())


def test_variables_of_the_provisioners_container_count() -> None:
    share = r"\1- name: K8SPILOT_SHARE\n\1  value: half\n\g<0>"
    found = faults(re.sub(r"( +)- name: POD_NAMESPACE\n", share, rendered()))
    assert any("K8SPILOT_SHARE is 'half'" in words for words in found.values())


def test_other_cron_jobs_are_left_alone() -> None:
    assert template_findings("kind: CronJob\nmetadata: {name: backup}\n---\nkind: List\nitems: []\n") == []
