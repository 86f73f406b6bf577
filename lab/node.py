"""The one node: etcd, the control plane, containerd, kubelet and kube-proxy as processes of this machine."""

import json
import shutil
import ssl
import time
import urllib.error
from pathlib import Path
from string import Template

from lab import cgroups, pki
from lab import kubectl as commands
from lab.errors import LabError
from lab.http import opened
from lab.network import NETWORK_NAME
from lab.patience import scaled
from lab.processes import Daemon, Daemons
from lab.settings import (
    API_PORT,
    BRIDGE,
    CGROUP,
    ETCD_PEER_PORT,
    ETCD_PORT,
    HERE,
    KUBELET_PORT,
    NODE_ADDRESS,
    NODE_NAME,
    POD_NETWORK,
    SERVICE_NETWORK,
    Settings,
)
from lab.shell import run

PATIENCE_S = scaled(180.0)
"""Time limit of the node's start, in seconds. After an outage of the API server a kubelet may need 90 s to report
again."""
_WITH_CLOUDS = ("1.33", "1.34", "1.35", "1.36")
"""Versions whose controller manager has controllers for clouds. They have nothing to do here."""
_CONFIGURATIONS = {
    "containerd-1.7": "containerd-1.7.toml",
    "containerd-2.4": "containerd.toml",
    "crio-1.36": "crio.conf",
}
_CLOUD_CONTROLLERS = ",-node-route-controller,-cloud-node-lifecycle-controller"


def core(settings: Settings) -> tuple[str, ...]:
    """Return the daemons whose loss makes a new node necessary: the state of the others is not true without them."""
    return "etcd", settings.runtime_daemon, "kube-apiserver"


def start(settings: Settings, daemons: Daemons, pause_image: str) -> None:
    """Start the daemons that do not run; return when the API answers and the kubelet was started. Idempotent."""
    pki.ensure(settings)
    _write_configuration(settings, pause_image)
    for early in (_runtime(settings), _etcd(settings), _apiserver(settings)):
        daemons.start(early)
    words = "the API server is not ready"
    daemons.wait_until("kube-apiserver", lambda: api_answers(settings), words, PATIENCE_S, others=core(settings))
    # The kubelet ends if no runtime answers. A runtime that is read from the disk can be slower than the API server.
    words = "the container runtime does not answer"
    daemons.wait_until(settings.runtime_daemon, lambda: runtime_answers(settings), words, PATIENCE_S)
    cgroups.make()
    for late in (_controller_manager(settings), _scheduler(settings), _proxy(settings), _kubelet(settings)):
        daemons.start(late)


def wait_ready(settings: Settings, daemons: Daemons) -> None:
    """Return when the node is Ready; raise LabError with the reason when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ready, words = _node_condition(settings)
        if ready:
            return
        for name in daemons.known():
            daemons.check(name)
        if time.monotonic() > deadline:
            raise LabError(f"the node is not Ready after {PATIENCE_S:.0f} s: {words} ({daemons.log('kubelet')})")
        time.sleep(0.2)


def api_answers(settings: Settings) -> bool:
    """Return whether the API server reports that it is ready."""
    authority = settings.pki / "ca.crt"
    if not authority.exists():
        return False
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with opened(f"https://{NODE_ADDRESS}:{API_PORT}/readyz", context=context, timeout=3) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def runtime_answers(settings: Settings) -> bool:
    """Return whether the container runtime answers the kubelet's first request (CRI: RuntimeService/Version).

    containerd answers `ctr` up to a second earlier, when its CRI plugin is not initialized yet.
    """
    command: list[str | Path] = [
        "curl",
        "--silent",
        "--http2-prior-knowledge",
        "--unix-socket",
        settings.runtime_socket,
    ]
    command += ["--header", "content-type: application/grpc", "--header", "te: trailers", "--data-binary", "@-"]
    empty_message = "\0" * 5  # no compression, and a length of 0
    try:
        answer = run(
            [*command, "http://localhost/runtime.v1.RuntimeService/Version"],
            what="ask the runtime",
            stdin=empty_message,
            timeout=30,
        )
    except LabError:
        return False
    return bool(answer)  # a refusal has no message


def _node_condition(settings: Settings) -> tuple[bool, str]:
    """Return whether the node is Ready, and the message of that condition."""
    try:
        answer = commands.perform(
            kubectl(settings),
            settings.admin_kubeconfig,
            ["get", "node", NODE_NAME, "-o", "json"],
            what="ask for the node",
            timeout=20,
        )
    except LabError as problem:
        return False, str(problem)
    node = json.loads(answer)
    if node["spec"].get("unschedulable"):
        run([*kubectl(settings), "uncordon", NODE_NAME], what="let pods onto the node again")
    for condition in node.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            return condition["status"] == "True", condition.get("message", "")
    return False, "it has not said anything yet"


def _write_configuration(settings: Settings, pause_image: str) -> None:
    state = settings.state
    values = {
        "state": state,
        "images": settings.images,
        "node_address": NODE_ADDRESS,
        "node_name": NODE_NAME,
        "kubelet_port": KUBELET_PORT,
        "cgroup": CGROUP,
        "bridge": BRIDGE,
        "pod_network": POD_NETWORK,
        "network_name": NETWORK_NAME,
        "pause_image": pause_image,
        "name_servers": json.dumps(_name_servers()),
        "registry_address": settings.registry_address,
        "runtime_socket": settings.runtime_socket,
        "downloads": settings.downloads,
    }
    targets = {
        _CONFIGURATIONS[settings.runtime]: state / "runtime.conf",
        "registries.conf": state / "registries.conf",
        "policy.json": state / "policy.json",
        "crio-runc.sh": state / "crio-bin/runc",
        "kubelet.yaml": state / "kubelet.yaml",
        "kube-proxy.yaml": state / "kube-proxy.yaml",
        "cni.conflist": state / "cni/net.d/10-lab.conflist",
        "hosts.toml": state / "certs.d" / settings.registry_address / "hosts.toml",
    }
    for source, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (HERE / "config" / source).read_text()
        if not source.endswith(".sh"):
            text = Template(text).substitute(values)
        if not target.exists() or target.read_text() != text:  # kube-proxy ends when its file is written
            target.write_text(text)
    (state / "crio-bin/runc").chmod(0o755)
    (state / "cdi").mkdir(exist_ok=True)
    if settings.runtime_daemon == "crio":
        settings.downloads.mkdir(parents=True, exist_ok=True)


def _name_servers() -> list[str]:
    """Return those name servers of the machine that pods can reach; at least one."""
    lines = Path("/etc/resolv.conf").read_text().splitlines() if Path("/etc/resolv.conf").exists() else []
    servers = [line.split()[1] for line in lines if line.startswith("nameserver ") and len(line.split()) > 1]
    return [server for server in servers if not server.startswith("127.")][:3] or [NODE_ADDRESS]


def _etcd(settings: Settings) -> Daemon:
    client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    return Daemon(
        "etcd",
        [
            settings.bin / "etcd",
            f"--data-dir={settings.state}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # a lab's data need not outlive the machine
            "--log-level=warn",
        ],
    )


def _runtime(settings: Settings) -> Daemon:
    program, configuration = settings.bin / settings.runtime_daemon, settings.state / "runtime.conf"
    if settings.runtime_daemon == "containerd":
        return Daemon("containerd", [program, "--config", configuration])
    # NVIDIA's runtimes find runc on the PATH that CRI-O gives to conmon, which is its own.
    path = f"PATH={settings.state}/crio-bin:{settings.bin}:/usr/sbin:/usr/bin:/sbin:/bin"
    # Without these folders, it reads the machine's own drop-ins.
    registries = (f"--registries-conf={settings.state}/registries.conf", f"--registries-conf-dir={settings.state}/none")
    return Daemon("crio", ["/usr/bin/env", path, program, "--config", configuration, "--config-dir", "", *registries])


def _apiserver(settings: Settings) -> Daemon:
    pki_folder = settings.pki
    return Daemon(
        "kube-apiserver",
        [
            settings.bin / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            f"--bind-address={NODE_ADDRESS}",
            f"--advertise-address={NODE_ADDRESS}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={pki_folder}/apiserver.crt",
            f"--tls-private-key-file={pki_folder}/apiserver.key",
            f"--client-ca-file={pki_folder}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki_folder}/service-account.pub",
            f"--service-account-signing-key-file={pki_folder}/service-account.key",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={pki_folder}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki_folder}/apiserver-kubelet.key",
            f"--kubelet-certificate-authority={pki_folder}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
        ],
    )


def _controller_manager(settings: Settings) -> Daemon:
    kubeconfig = settings.pki / "controller-manager.kubeconfig"
    return Daemon(
        "kube-controller-manager",
        [
            settings.bin / "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={settings.pki}/service-account.key",
            f"--root-ca-file={settings.pki}/ca.crt",
            "--use-service-account-credentials",
            f"--controllers=*,-node-ipam-controller{_CLOUD_CONTROLLERS if settings.kubernetes in _WITH_CLOUDS else ''}",
            "--leader-elect=false",
            "--secure-port=0",
        ],
    )


def _scheduler(settings: Settings) -> Daemon:
    program = settings.bin / "kube-scheduler"
    kubeconfig = settings.pki / "scheduler.kubeconfig"
    return Daemon("kube-scheduler", [program, f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"])


def _proxy(settings: Settings) -> Daemon:
    return Daemon("kube-proxy", [settings.bin / "kube-proxy", f"--config={settings.state}/kube-proxy.yaml"])


def _kubelet(settings: Settings) -> Daemon:
    return Daemon(
        "kubelet",
        [
            settings.bin / "kubelet",
            f"--config={settings.state}/kubelet.yaml",
            f"--kubeconfig={settings.pki}/kubelet.kubeconfig",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
            f"--root-dir={settings.state}/kubelet",
            f"--cert-dir={settings.state}/kubelet/pki",
        ],
    )


def kubectl(settings: Settings) -> list[str | Path]:
    """Return the beginning of every kubectl command line."""
    program: str | Path = settings.bin / "kubectl"
    if settings.kubeconfig is not None:
        program = shutil.which("kubectl") or program
    return [program, "--kubeconfig", settings.admin_kubeconfig]
