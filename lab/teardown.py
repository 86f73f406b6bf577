"""Removal of the lab in any state: its daemons stop, and everything but the cache is removed."""

import contextlib
import shutil
import subprocess
from pathlib import Path

from lab import cgroups, network, network_policies, processes, registry
from lab.errors import LabError
from lab.gpu import node as gpus
from lab.processes import Daemons
from lab.settings import Settings
from lab.shell import run

SHIM_SOCKETS = Path("/run/containerd")
DOCKER_BRIDGE = "k8spilot1"
DOCKER_PLUGINS = Path("/run/docker/plugins")
"""The one folder that dockerd makes whatever its options are."""


def clean(settings: Settings, daemons: Daemons) -> None:
    """Remove every process, mount, namespace, bridge, rule, cgroup and file of the lab; the cache stays.

    This works after a partial removal, and twice in a row.
    """
    # The kubelet first, or it would start anew what we are about to end. All but the registry may simply be
    # killed: what they keep is removed.
    processes.end(daemons.living("kubelet"), grace_s=0)
    processes.end(daemons.living(registry.NAME))
    processes.end(daemons.living(), grace_s=0)
    cgroups.thaw()
    processes.end(processes.strays(settings), grace_s=0)  # shims: from now on no container can be made
    processes.end(cgroups.processes(), grace_s=0)
    unmount_below(settings.state, settings.cache)
    remove_what_dockerd_makes()
    had_network = network.remains()
    network.remove(settings)
    if had_network:
        network_policies.remove_sets(settings)
    cgroups.remove()
    _remove_shim_sockets()
    gpus.remove()
    shutil.rmtree(settings.state, ignore_errors=True)
    if settings.state.exists():
        raise LabError(f"{settings.state} could not be removed altogether: see what is left there")


def mounts_below(*folders: Path) -> list[Path]:
    """Return all mount points below `folders`, the innermost and latest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split(" ")[4].encode().decode("unicode_escape"))
        if any(point.is_relative_to(folder) for folder in folders):
            found.append(point)
    return found[::-1]


def unmount_below(*folders: Path) -> None:
    """Unmount all that is mounted below `folders`."""
    for point in mounts_below(*folders):
        subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)
    left = mounts_below(*folders)
    if left:
        run(["umount", left[0]], what=f"unmount {left[0]}")


def _remove_shim_sockets() -> None:
    """Remove the sockets of the lab's shims; the folders stay if another containerd uses them."""
    for socket in (SHIM_SOCKETS / "s").glob("*"):
        answer = subprocess.run(["ss", "-xlH", "src", str(socket)], capture_output=True, text=True, check=False)
        if not answer.stdout.strip():
            socket.unlink(missing_ok=True)
    for folder in (SHIM_SOCKETS / "s", SHIM_SOCKETS):
        with contextlib.suppress(OSError):
            folder.rmdir()


def remove_what_dockerd_makes() -> None:
    """Remove the files that the daemon of lab/dockerd.py, which has ended, made outside of its own folder."""
    if Path(f"/sys/class/net/{DOCKER_BRIDGE}").exists():
        run(["ip", "link", "delete", DOCKER_BRIDGE], what=f"remove the bridge {DOCKER_BRIDGE}")
    for empty in (DOCKER_PLUGINS, DOCKER_PLUGINS.parent):
        with contextlib.suppress(OSError):  # another dockerd uses it, or there is none
            empty.rmdir()
