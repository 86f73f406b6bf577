"""Enforcement of network policies on the lab's node: the firewall of kube-router, started on demand.

It is a part of kube-router that runs alone, beside any other network (`--run-firewall`, docs/user-guide.md of
kube-router). While it runs, it applies to all pods of the node; those that no policy selects are not limited.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab import binaries, machine, network
from lab.errors import LabError
from lab.patience import scaled
from lab.processes import Daemon, Daemons, end
from lab.progress import Progress
from lab.settings import NODE_NAME, SERVICE_NETWORK, Settings
from lab.shell import run

NAME: Final = "kube-router"
_IPSET: Final = ("ipset", "libipset13", "libmnl0")
"""Packages of ipset, with which kube-router changes sets of addresses. They are unpacked and not installed."""
_PATIENCE_S: Final = scaled(60.0)
_READY: Final = "-N KUBE-POD-FW-"
"""Part of a line of `iptables -S` for a pod's chain. kube-router writes these chains last."""
_CHAINS: Final = r"KUBE-(?:ROUTER|NWPLCY|POD-FW)-\S+"
"""kube-router's chains, as a regular expression."""
_SETS: Final = ("KUBE-SRC-", "KUBE-DST-", "kube-router-", "TMP-")
"""Beginnings of the names of kube-router's sets of addresses."""


@contextmanager
def enforced(settings: Settings, progress: Progress) -> Iterator[None]:
    """Enforce network policies while the body runs. Raises LabError."""
    if settings.kubeconfig is not None:
        raise LabError("KUBECONFIG is set: the lab enforces network policies on its own node only")
    (folder,) = binaries.ensure(settings, progress, [binaries.NETWORK_POLICIES])
    stop(settings)  # of a run that was killed
    daemons = Daemons(settings)
    try:
        daemons.start(_daemon(settings, folder / NAME, _with_ipset(settings, progress)))
        daemons.wait_until(NAME, _has_rules, "kube-router has no rules", _PATIENCE_S, pause=0.2)
        yield
    finally:
        stop(settings)


def _has_rules() -> bool:
    return _READY in run(["iptables", "-w", "-S"], what="read the rules of the node")


def stop(settings: Settings) -> None:
    """End the enforcement, also that of a killed run. Raises LabError."""
    daemons = Daemons(settings)
    if NAME not in daemons.known():
        return
    end(daemons.living(NAME))
    # Not by --cleanup-config, which needs the parts of kube-router that do not run here.
    network.remove_chains("iptables", _CHAINS)
    remove_sets(settings)
    daemons.stop(NAME)


def remove_sets(settings: Settings) -> None:
    """Remove kube-router's sets of addresses, once the rules that name them are gone. A set that is in use stays."""
    root = settings.cache / "programs" / _IPSET[0]
    if not root.is_dir():
        return
    environment = {**os.environ, **_environment(root)}
    listed = subprocess.run(["ipset", "list", "-name"], env=environment, capture_output=True, text=True, check=False)
    for name in listed.stdout.split():
        if name.startswith(_SETS):
            subprocess.run(["ipset", "destroy", name], env=environment, capture_output=True, check=False)


def _daemon(settings: Settings, program: Path, environment: dict[str, str]) -> Daemon:
    options: dict[str, str | Path] = {
        "run-firewall": "true",
        "run-router": "false",
        "run-service-proxy": "false",
        "kubeconfig": settings.admin_kubeconfig,
        "hostname-override": NODE_NAME,
        "service-cluster-ip-range": SERVICE_NETWORK,
        "iptables-sync-period": "10s",
        "health-port": "0",
        "metrics-port": "0",
        "enable-ipv6": "false",
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return Daemon(NAME, ["/usr/bin/env", *variables, program, *arguments])


def _with_ipset(settings: Settings, progress: Progress) -> dict[str, str]:
    """Return the environment in which a program finds ipset and its libraries."""
    return _environment(machine.unpack_packages(settings, progress, _IPSET[0], _IPSET))


def _environment(root: Path) -> dict[str, str]:
    libraries = [str(one) for one in root.rglob("*-linux-gnu") if one.is_dir()]
    return {
        "PATH": os.pathsep.join((f"{root}/usr/sbin", f"{root}/sbin", os.environ.get("PATH", os.defpath))),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
    }
