"""Request counters: those of a Kubernetes API server (its /metrics) and those of a pilot."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from lab.api import Lab
from lab.settings import PILOT_NAMESPACE

_SAMPLE = re.compile(r"^(?P<name>apiserver_\w+_total)\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OF_PILOT = re.compile(r"^k8spilot_api_requests_total\{[^}]*\} (\S+)$", re.MULTILINE)
METRICS_PORT = 9464
SERVICE_ACCOUNTS = "service-accounts"
"""Flow schema of priority and fairness for requests of all service accounts except those of kube-system. Requests of
pilots belong to it; the node, controllers and administrators have other flows."""


@dataclass(frozen=True)
class Counters:
    """Counts since the server's start, or between two moments."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Answered requests, by verb, and by resource with its subresource. A watch counts when it ends."""
    flows: Counter[str] = field(default_factory=Counter)
    """Dispatched requests, by flow schema. A watch counts when it begins."""
    events: Counter[str] = field(default_factory=Counter)
    """Events that were sent to watchers, by resource; each watcher counts."""

    def since(self, before: "Counters") -> "Counters":
        """Return the difference from an earlier count."""
        return Counters(
            Counter({kind: count - before.requests[kind] for kind, count in self.requests.items()}),
            Counter({flow: count - before.flows[flow] for flow, count in self.flows.items()}),
            Counter({kind: count - before.events[kind] for kind, count in self.events.items()}),
        )

    def of(self, *resources: str) -> int:
        """Return the number of requests about some resources, all verbs."""
        return sum(count for (_, resource), count in self.requests.items() if resource in resources)

    @property
    def about_pods(self) -> int:
        """Number of requests about pods, Events and Jobs, by all clients.

        Requests about leases and nodes, and those with which controllers renew objects, do not count: they need no
        jobs.
        """
        return self.of("pods", "pods/status", "pods/resize", "pods/binding", "events", "jobs", "jobs/status")

    @property
    def total(self) -> int:
        """Number of all requests."""
        return sum(self.requests.values())


def parse(text: str) -> Counters:
    """Read the API server's metrics."""
    found = Counters()
    for name, labels, value in _samples(text):
        if name == "apiserver_request_total":
            resource = "/".join(part for part in (labels.get("resource", ""), labels.get("subresource", "")) if part)
            found.requests[labels.get("verb", ""), resource] += value
        elif name == "apiserver_flowcontrol_dispatched_requests_total":
            found.flows[labels.get("flow_schema", "")] += value
        elif name == "apiserver_watch_events_total":
            # The label was `kind` once ("Pod").
            kind = labels.get("kind")
            found.events[f"{kind.lower()}s" if kind else labels.get("resource", "")] += value
    return found


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], int]]:
    for found in _SAMPLE.finditer(text):
        yield found["name"], dict(_LABEL.findall(found["labels"])), round(float(found["value"]))


def counters(lab: Lab) -> Counters:
    """Read the counters of the lab's API server. This request is counted, too. Raises LabError."""
    return parse(lab.kubectl("get", "--raw", "/metrics"))


def of_pilot(lab: Lab, pod: str) -> int:
    """Return the number of requests that a pilot has made, by its own counter. Raises LabError."""
    path = f"/api/v1/namespaces/{PILOT_NAMESPACE}/pods/{pod}:{METRICS_PORT}/proxy/metrics"
    return sum(round(float(value)) for value in _OF_PILOT.findall(lab.kubectl("get", "--raw", path)))
