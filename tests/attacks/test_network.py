"""The component network-policy, enforced by kube-router's firewall: what a job reaches, and who reaches a job.

Each peer listens, and a job reaches all of them before the policies are enforced.
"""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from lab import network_policies, pilot
from lab.api import Lab
from lab.jobs import wait_in_pool
from lab.settings import API_PORT, API_SERVICE_ADDRESS, BRIDGE, KUBELET_PORT, NODE_ADDRESS
from tests.attacks.ground import Ground, attacked, python
from tests.e2e.pool import until

pytestmark = [pytest.mark.disruptive, pytest.mark.landing, pytest.mark.timeout(900)]

PORT, METRICS, CLOSED = 8077, 9464, 8078
METADATA, PRIVATE, PUBLIC = "169.254.77.77", "192.168.77.77", "203.0.113.77"
"""Addresses that the test gives to the node: a link-local one, as of most clouds' metadata services, one of a private
network, and one that no network has (RFC 5737), which counts as public."""
POLICIES = ("networkpolicy", "k8spilot", "k8spilot-site")
CONNECT = """
import json, socket
def reaches(address, port):
    try:
        socket.create_connection((address, port), timeout=4).close()
    except OSError:
        return False
    return True
print(json.dumps({name: reaches(*peer) for name, peer in PEERS.items()}))
"""
SERVE = f"""
import http.server
server = http.server.HTTPServer(("", {PORT}), http.server.SimpleHTTPRequestHandler)
server.serve_forever()
"""


@dataclass(frozen=True)
class Site:
    """A pilot with the component, and a pod of another kind in its namespace."""

    ground: Ground
    neighbour: str

    def peers(self) -> dict[str, tuple[str, int]]:
        """Return the addresses and ports to which a job tries to connect, by name."""
        registry, _, port = self.ground.lab.registry.partition(":")
        return {
            "the API server": (API_SERVICE_ADDRESS, 443),
            "the API server by the node's address": (NODE_ADDRESS, API_PORT),
            "the registry": (registry, int(port)),
            "the central manager": (self.ground.lab.pool_host, 9618),
            "a public address": (PUBLIC, PORT),
            "the kubelet": (NODE_ADDRESS, KUBELET_PORT),
            "another pod": (self._address(self.neighbour), PORT),
            "a metadata service": (METADATA, PORT),
            "a private address": (PRIVATE, PORT),
        }

    def reached(self) -> set[str]:
        """Return the names of the peers to which a job can connect."""
        script = python(CONNECT.replace("PEERS", repr(self.peers())))
        found: dict[str, bool] = json.loads(self.ground.attack(script).text)
        return {name for name, is_reached in found.items() if is_reached}

    def others_reach(self) -> set[int]:
        """Ports of the pilot's pod that the other pod can connect to."""
        address = self._address(self.ground.pod)
        peers = {port: (address, port) for port in (PORT, METRICS, CLOSED)}
        script = python(CONNECT.replace("PEERS", repr(peers)))
        found = json.loads(pilot.inside(self.ground.lab, self.neighbour, script, "neighbour"))
        return {int(port) for port, is_reached in found.items() if is_reached}

    def _address(self, pod: str) -> str:
        lab = self.ground.lab
        return lab.kubectl("get", "pod", pod, "-n", lab.namespace, "-o", "jsonpath={.status.podIP}")


@pytest.fixture(scope="module")
def site(lab: Lab, owner: str) -> Iterator[Site]:
    """A pilot with the component, whose policies nobody enforces yet."""
    name, neighbour = f"e2e-{owner}-network", f"e2e-{owner}-neighbour"
    try:
        _run_neighbour(lab, neighbour)
        pilot.deploy(lab, name, overlay={"components": ["network-policy"], "patches": [_site_policy(lab)]})
        wait_in_pool(lab, name)
        with _addresses(METADATA, PRIVATE, PUBLIC), attacked(lab, name) as ground:
            yield Site(ground, neighbour)
    finally:
        lab.kubectl("delete", *POLICIES, "-n", lab.namespace, "--ignore-not-found")
        pilot.discard(lab, name, neighbour)


def test_the_policies_let_a_job_reach_what_the_pilot_needs_and_public_addresses_and_nothing_else(site: Site) -> None:
    allowed = {
        "the API server",
        "the API server by the node's address",
        "the registry",
        "the central manager",
        "a public address",
    }
    assert site.reached() == set(site.peers())
    with network_policies.enforced(site.ground.lab.settings, site.ground.lab.progress):
        assert site.reached() == allowed
        site.ground.is_fit()
    assert site.reached() == set(site.peers()), "the rules are gone"


def test_other_pods_reach_the_metrics_of_a_pilot_and_no_port_of_a_job(site: Site) -> None:
    jobs = site.ground.alice(python(SERVE))
    jobs.wait("ExecuteEvent")
    until(lambda: site.others_reach() == {PORT, METRICS}, "the job serves", 20)
    with network_policies.enforced(site.ground.lab.settings, site.ground.lab.progress):
        assert site.others_reach() == {METRICS}
    assert site.others_reach() == {PORT, METRICS}, "the job serves all the time"
    jobs.remove()


def _run_neighbour(lab: Lab, name: str) -> None:
    """Run a pod that serves HTTP."""
    container = {
        "name": "neighbour",
        "image": lab.image,
        "command": ["python3", "-m", "http.server", str(PORT)],
        "securityContext": {"runAsUser": 65534, "allowPrivilegeEscalation": False},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": lab.labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    lab.kubectl("apply", "-n", lab.namespace, "-f", "-", input=json.dumps(pod))
    lab.kubectl("wait", "-n", lab.namespace, "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def _site_policy(lab: Lab) -> dict[str, object]:
    """The patch by which an operator replaces the examples."""
    registry, _, port = lab.registry.partition(":")

    def to(address: str, number: int) -> dict[str, object]:
        return {"to": [{"ipBlock": {"cidr": f"{address}/32"}}], "ports": [{"port": number, "protocol": "TCP"}]}

    pool = {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "pool"}}}]}
    egress = [to(API_SERVICE_ADDRESS, 443), to(NODE_ADDRESS, API_PORT), to(registry, int(port)), pool]
    patch = [{"op": "replace", "path": "/spec/egress", "value": egress}]
    return {"target": {"kind": "NetworkPolicy", "name": "k8spilot-site"}, "patch": json.dumps(patch)}


@contextmanager
def _addresses(*addresses: str) -> Iterator[None]:
    """Give the node these addresses, and listen at PORT of each."""
    with ExitStack() as cleanup:
        for address in addresses:
            place = [f"{address}/32", "dev", BRIDGE]
            subprocess.run(["ip", "address", "replace", *place], check=True, capture_output=True)
            cleanup.callback(subprocess.run, ["ip", "address", "del", *place], check=True, capture_output=True)
            # The kernel completes connections of a socket that listens, also while nobody accepts them.
            cleanup.enter_context(socket.create_server((address, PORT), backlog=64))
        yield
