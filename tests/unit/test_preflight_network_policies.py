"""The check of network policies: which apply to a pilot, and the example addresses that nobody has replaced."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.common.errors import SettingsError
from k8spilot.model.blocked_hosts import METADATA
from k8spilot.preflight.finding import Finding, Verdict
from k8spilot.preflight.manifest import manifest_findings
from k8spilot.preflight.network_policies import network_findings
from tests.unit.test_manifests import KUBECTL, rendered

COMPONENT = Path(__file__).parents[2] / "components/network-policy/policies.yaml"
LABELS = {"app.kubernetes.io/name": "k8spilot", "app.kubernetes.io/component": "execution-point"}


def policies() -> dict[str, dict[str, Any]]:
    """The component's policies by name."""
    return {one["metadata"]["name"]: one for one in yaml.safe_load_all(COMPONENT.read_text())}


def findings(*chosen: dict[str, Any], labels: dict[str, str] = LABELS) -> list[Finding]:
    """Return the findings of the check about some policies."""
    return list(network_findings(labels, chosen))


def test_the_components_policies_apply_to_pilots_and_its_examples_are_faults_until_they_are_replaced() -> None:
    found = policies()
    faults = findings(*found.values())
    assert {one.verdict for one in faults} == {Verdict.FAULT}
    assert [one.words.split()[4] for one in faults] == ["192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32"]
    assert all("NetworkPolicy k8spilot-site" in one.words for one in faults)
    found["k8spilot-site"]["spec"]["egress"] = [{"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}]}]
    (good,) = findings(*found.values())
    assert good.verdict is Verdict.GOOD
    assert good.words.endswith("limited by k8spilot, k8spilot-site")


@pytest.mark.parametrize(
    ("selector", "applies"),
    [
        ({}, True),
        ({"matchLabels": {"app.kubernetes.io/name": "k8spilot"}}, True),
        ({"matchLabels": {"app.kubernetes.io/name": "other"}}, False),
        ({"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "In", "values": ["k8spilot"]}]}, True),
        ({"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["k8spilot"]}]}, False),
        ({"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["batch"]}]}, True),
    ],
)
def test_a_policy_applies_to_the_pods_that_its_selector_selects(selector: dict[str, Any], applies: bool) -> None:
    found = findings({"metadata": {"name": "p"}, "spec": {"podSelector": selector}})
    assert bool(found) is applies


@pytest.mark.parametrize("cidr", ["192.0.2.0/24", "198.51.100.7/32", "203.0.113.128/25", "2001:db8:1::/48"])
def test_addresses_for_documentation_are_examples_in_both_directions(cidr: str) -> None:
    for direction, side in (("ingress", "from"), ("egress", "to")):
        spec = {direction: [{side: [{"ipBlock": {"cidr": cidr}}]}]}
        (found,) = [
            one for one in findings({"metadata": {"name": "p"}, "spec": spec}) if one.verdict is not Verdict.WARNING
        ]
        assert (found.verdict, cidr in found.words) == (Verdict.FAULT, True)


def test_a_rule_for_everybody_is_no_example() -> None:
    spec = {"egress": [{}, {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"podSelector": {}}]}], "ingress": [{}]}
    assert [one.verdict for one in findings({"metadata": {"name": "p"}, "spec": spec})] == [Verdict.GOOD]


@pytest.mark.parametrize(
    ("ports", "metrics_port", "warnings"),
    [
        ([{"port": 9464, "protocol": "TCP"}], 9464, []),
        ([{"port": 9464}], 9999, ["no NetworkPolicy lets", "the NetworkPolicy p lets"]),
        ([{"port": 9464}], 0, ["the NetworkPolicy p lets"]),
        ([{"port": 9500, "endPort": 10000}], 9999, []),
        ([{"port": 9000, "endPort": 10000}], 9999, ["the NetworkPolicy p lets"]),
        ([{"port": 9464, "protocol": "UDP"}, {"port": 9999}], 9999, []),
        ([{"port": 9999, "protocol": "UDP"}], 9999, ["no NetworkPolicy lets"]),
        ([{"port": "metrics"}], 9464, []),
        ([{"port": "metrics"}], 9999, ["no NetworkPolicy lets", "the NetworkPolicy p lets"]),
        ([{"port": "web"}], 9999, ["no NetworkPolicy lets"]),
        ([{"protocol": "TCP"}], 9999, ["the NetworkPolicy p lets"]),
        ([], 9999, []),
    ],
)
def test_the_ports_that_are_let_in_are_compared_with_the_pilots_own(
    ports: list[dict[str, Any]], metrics_port: int, warnings: list[str]
) -> None:
    policy = {"metadata": {"name": "p"}, "spec": {"ingress": [{"ports": ports}]}}
    found = [one for one in network_findings(LABELS, [policy], metrics_port) if one.verdict is Verdict.WARNING]
    assert [" ".join(one.words.split()[: len(words.split())]) for one, words in zip(found, warnings, strict=True)] == (
        warnings
    )


def test_a_policy_for_egress_alone_and_one_that_lets_nothing_in() -> None:
    egress = {"metadata": {"name": "p"}, "spec": {"policyTypes": ["Egress"]}}
    assert [one.verdict for one in findings(egress)] == [Verdict.GOOD]
    closed = {"metadata": {"name": "p"}, "spec": {"policyTypes": ["Ingress"]}}
    assert [one.verdict for one in findings(closed)] == [Verdict.WARNING, Verdict.GOOD]


@KUBECTL
def test_the_templates_of_a_factory_leave_the_policies_to_the_factory(tmp_path: Path) -> None:
    objects = rendered(tmp_path, "pilot-template", "network-policy")
    assert {one["kind"] for one in objects} == {"CronJob"}


def _broken(policy: dict[str, Any]) -> None:
    policy["spec"]["egress"][0]["to"][0]["ipBlock"]["cidr"] = "10.0.0.1/40"


def _elsewhere(policy: dict[str, Any]) -> None:
    policy["metadata"]["namespace"] = "elsewhere"


def test_no_metadata_service_of_a_cloud_is_a_public_address() -> None:
    (rule,) = [one for one in policies()["k8spilot"]["spec"]["egress"] if "ipBlock" in one["to"][0]]
    closed = [ip_network(one) for one in rule["to"][0]["ipBlock"]["except"]]
    addresses = [*METADATA, ip_address("169.254.169.254")]
    assert not [one for one in addresses if one.version == 4 and not any(one in network for network in closed)]
    assert not any(":" in peer["ipBlock"]["cidr"] for peer in rule["to"]), "IPv6 has no rule"


@pytest.mark.slow
@KUBECTL
@pytest.mark.parametrize("component", ["own-pod", "job", "deployment", "restricted"])
def test_check_reads_the_policies_of_a_rendered_overlay(tmp_path: Path, component: str) -> None:
    found = manifest_findings(yaml.safe_dump_all(rendered(tmp_path, component, "network-policy")))
    assert len([one for one in found if one.check == "network policy"]) == 3


@KUBECTL
@pytest.mark.parametrize(("change", "words"), [(_broken, "invalid form"), (_elsewhere, "")])
def test_a_policy_of_another_namespace_does_not_count_and_an_invalid_one_is_told_in_a_sentence(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    objects = rendered(tmp_path, "network-policy")
    for one in objects:
        if one["metadata"]["name"] == "k8spilot-site":
            change(one)
    text = yaml.safe_dump_all(objects)
    if words:
        with pytest.raises(SettingsError, match=words):
            manifest_findings(text)
    else:
        assert [one.verdict for one in manifest_findings(text) if one.check == "network policy"] == [Verdict.GOOD]
