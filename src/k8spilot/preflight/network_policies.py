"""Checks of the network policies in a manifest: which apply to a pilot, and whether example addresses remain.

A policy that selects a pod for a direction denies everything in it that no policy allows (Kubernetes documentation,
Network Policies). So the example addresses of the component network-policy shut the pilot off from the API server.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

from k8spilot.preflight.finding import Finding, fault, good, warning

Json = dict[str, Any]

_EXAMPLES: Final = tuple(
    ip_network(one) for one in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
)
"""Networks for documentation (RFC 5737, RFC 3849)."""
_CHECK: Final = "network policy"
_USUAL_PORT: Final = 9464
"""Metrics port of the component."""
_NAMED_PORT: Final = "metrics"
"""Name of that port in the pod. A pilot with another port may have left the name as it was."""


def network_findings(
    labels: Mapping[str, str], policies: Sequence[Json], metrics_port: int = _USUAL_PORT
) -> Iterator[Finding]:
    """Check the policies that apply to a pod; nothing if none does.

    Args:
        labels: labels of the pod.
        policies: all objects of the kind NetworkPolicy that are in the pod's namespace.
        metrics_port: K8SPILOT_METRICS_PORT; 0 if the pilot has no such port.
    """
    applying = [one for one in policies if _selects(one["spec"].get("podSelector") or {}, labels)]
    if not applying:
        return
    faults = [
        f"replace the example address {address} in the NetworkPolicy {policy['metadata']['name']} by your site's; "
        "otherwise the pilot cannot reach what the rule is for"
        for policy in applying
        for address in _examples(policy["spec"])
    ]
    yield from (fault(_CHECK, words) for words in faults)
    yield from (warning(_CHECK, words) for words in _port_warnings(applying, metrics_port))
    if not faults:
        names = ", ".join(sorted(str(one["metadata"]["name"]) for one in applying))
        yield good(_CHECK, f"the connections of the pilot and its jobs are limited by {names}")


def _port_warnings(policies: Sequence[Json], metrics_port: int) -> Iterator[str]:
    """Compare the ports that the policies let in with the one on which the pilot listens."""
    limiting = [one for one in policies if "Ingress" in (one["spec"].get("policyTypes") or ("Ingress",))]
    rules = [(one["metadata"]["name"], rule) for one in limiting for rule in one["spec"].get("ingress") or ()]
    if not limiting:
        return
    if metrics_port and not any(_lets_in(rule, metrics_port) for _, rule in rules):
        yield (
            f"no NetworkPolicy lets connections to the metrics port {metrics_port} in: add an ingress rule for it, or "
            "metrics cannot be read from other pods"
        )
    for name, rule in rules:
        if metrics_port != _USUAL_PORT and rule.get("ports") and _lets_in(rule, _USUAL_PORT):
            yield (
                f"the NetworkPolicy {name} lets connections to port {_USUAL_PORT} in, on which this pilot does not "
                "listen: remove that port, or a job that listens there can be reached"
            )


def _lets_in(rule: Json, number: int) -> bool:
    """Return whether an ingress rule has a TCP port (networking/v1 NetworkPolicyPort); one without ports has all."""
    if not (ports := rule.get("ports")):
        return True
    return any(_has(port, number) for port in ports if port.get("protocol", "TCP") == "TCP")


def _has(port: Json, number: int) -> bool:
    first = port.get("port")
    if not isinstance(first, int):
        return first is None or (first == _NAMED_PORT and number == _USUAL_PORT)
    last: int = port.get("endPort", first)
    return first <= number <= last


def _examples(spec: Json) -> Iterator[str]:
    """Yield the addresses of a policy that are for documentation only."""
    peers = [
        peer
        for direction, side in (("ingress", "from"), ("egress", "to"))
        for rule in spec.get(direction) or ()
        for peer in rule.get(side) or ()
    ]
    for peer in peers:
        cidr = str((peer.get("ipBlock") or {}).get("cidr", ""))
        if cidr and _is_example(cidr):
            yield cidr


def _is_example(cidr: str) -> bool:
    network = ip_network(cidr, strict=False)
    return any(_is_within(network, example) for example in _EXAMPLES)


def _is_within(network: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    return network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects a pod with these labels (metav1.LabelSelector)."""
    wanted: Iterable[tuple[str, str]] = (selector.get("matchLabels") or {}).items()
    if any(labels.get(name) != value for name, value in wanted):
        return False
    return all(_meets(one, labels) for one in selector.get("matchExpressions") or ())


def _meets(requirement: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
