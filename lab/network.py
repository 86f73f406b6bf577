"""The node's network on this machine: a bridge, its rules, and the kernel settings it needs."""

import json
import os
import re
import subprocess
from pathlib import Path

from lab import machine
from lab.settings import BRIDGE, NODE_ADDRESS, POD_NETWORK, Settings
from lab.shell import run

CHAIN = "K8SPILOT-LAB"
"""Our own iptables chain. It is made first and removed last: while it exists, the KUBE- chains belong to the lab."""

ALL_CHAINS = rf"KUBE-\S+|{CHAIN}"
"""Kubernetes' chains and our own, as a regular expression."""

NETWORK_NAME = "k8spilot-lab"

KERNEL_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}
CHANGED_BY_KUBERNETES = (
    "net/ipv4/conf/all/route_localnet",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)

RULES = (
    ("nat", "POSTROUTING", ["-s", POD_NETWORK, "!", "-d", POD_NETWORK, "-j", "MASQUERADE"]),
    ("filter", "FORWARD", ["-i", BRIDGE, "-j", "ACCEPT"]),
    ("filter", "FORWARD", ["-o", BRIDGE, "-j", "ACCEPT"]),
)


def ensure(settings: Settings) -> None:
    """Make the bridge with the node's address, the rules and the kernel settings; existing ones stay."""
    _keep_kernel_settings(settings)
    machine.load_modules()
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        _ip("link", "add", "name", BRIDGE, "type", "bridge")
    prefix = POD_NETWORK.split("/")[1]
    _ip("address", "replace", f"{NODE_ADDRESS}/{prefix}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    for table in ("nat", "filter"):
        if not _holds("iptables", table, "-S", CHAIN):
            _iptables(table, "-N", CHAIN)
    for table, hook, rule in RULES:
        if not _holds("iptables", table, "-C", hook, "-j", CHAIN):
            _iptables(table, "-I", hook, "1", "-j", CHAIN)
        if not _holds("iptables", table, "-C", CHAIN, *rule):
            _iptables(table, "-A", CHAIN, *rule)
    for name, value in KERNEL_SETTINGS.items():
        path = Path("/proc/sys") / name
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)


def remove(settings: Settings) -> None:
    """Remove the bridge, the host ends of the pods' links, all rules of the lab, and CNI's records."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        for port in Path(f"/sys/class/net/{BRIDGE}/brif").iterdir():
            # It may go by itself at this moment: its other end was in a pod that has just ended.
            subprocess.run(["ip", "link", "delete", port.name], capture_output=True, check=False)
        _ip("link", "delete", BRIDGE)
    if _holds("iptables", "nat", "-S", CHAIN):
        for family in ("ip6tables", "iptables"):
            remove_chains(family)
    _remove_cni_results(settings)
    _restore_kernel_settings(settings)


def remains() -> bool:
    """Whether a bridge or rules of a lab are on this machine."""
    return Path(f"/sys/class/net/{BRIDGE}").exists() or _holds("iptables", "nat", "-S", CHAIN)


def _ip(*arguments: str) -> None:
    run(["ip", *arguments], what=f"set the bridge {BRIDGE} up (ip {arguments[0]} {arguments[1]})")


def _iptables(table: str, *arguments: str) -> None:
    run(["iptables", "-w", "-t", table, *arguments], what="write the lab's iptables rules")


def _holds(program: str, table: str, *arguments: str) -> bool:
    command = [program, "-w", "-t", table, *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def remove_chains(family: str, names: str = ALL_CHAINS) -> None:
    """Remove chains, and the rules that lead to them. The family is iptables or ip6tables; see removal_orders."""
    orders = removal_orders(run([f"{family}-save"], what=f"read the {family} rules"), names)
    if orders:
        run([f"{family}-restore", "--noflush", "-w"], what=f"remove the lab's {family} rules", stdin=orders)


def removal_orders(saved: str, names: str = ALL_CHAINS) -> str:
    """Return what `iptables-restore --noflush` must read to remove chains; "" if there is nothing to remove.

    One transaction a table. Chains and rules of others are not named at all.

    Args:
        saved: the output of iptables-save.
        names: a regular expression of the chains' names, without groups.
    """
    orders: list[str] = []
    table: list[str] = []
    chains: list[str] = []
    for line in saved.splitlines():
        if line.startswith("*"):
            table, chains = [line], []
        elif found := re.match(rf":({names})\s", line):
            chains.append(found[1])
            table.append(f":{found[1]} - [0:0]")
        elif re.match(rf"-A (?!(?:{names})\s).* -j (?:{names})( |$)", line):
            table.append("-D" + line.removeprefix("-A"))
        elif line == "COMMIT" and chains:
            orders += [*table, *(f"-X {chain}" for chain in chains), line]
    return "".join(f"{order}\n" for order in orders)


def _remove_cni_results(settings: Settings) -> None:
    folder = Path("/var/lib/cni/results")
    if folder.is_dir():
        for note in folder.iterdir():
            if bytes(settings.state) in note.read_bytes():  # as the path of the pod's network namespace
                note.unlink()
    for empty in (folder, folder.parent):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()


def _keep_kernel_settings(settings: Settings) -> None:
    kept = settings.state / "kernel-settings.json"
    if kept.exists():
        return
    paths = {name: Path("/proc/sys") / name for name in (*KERNEL_SETTINGS, *CHANGED_BY_KUBERNETES)}
    found = {name: path.read_text().strip() for name, path in paths.items() if path.exists()}
    # A module that is loaded later turns its setting on for all bridges of the machine.
    kept.write_text(json.dumps({**dict.fromkeys(KERNEL_SETTINGS, "0"), **found}))


def _restore_kernel_settings(settings: Settings) -> None:
    kept = settings.state / "kernel-settings.json"
    if not kept.exists():
        return
    for name, value in json.loads(kept.read_text()).items():
        path = Path("/proc/sys") / name
        if path.exists() and os.access(path, os.W_OK) and path.read_text().strip() != value:
            path.write_text(value)
