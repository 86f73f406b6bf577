"""The distribution's dockerd, started on demand: the reference for what HTCondor sees of Docker.

The packages are unpacked in the cache and not installed, because their scripts start a daemon and write firewall rules.
"""

import contextlib
import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import cgroups, machine, shell, teardown
from lab.errors import LabError
from lab.patience import scaled
from lab.processes import Daemon, Daemons, end
from lab.progress import Progress
from lab.settings import CGROUP, Settings

NAME = "dockerd"
PACKAGES = ("docker.io", "containerd", "tini")
NETWORK = "oracle"
"""A network for containers that ask for it by name."""
SUBNET = "10.236.0.0/24"
_BRIDGE_OPTION = f"com.docker.network.bridge.name={teardown.DOCKER_BRIDGE}"
PATIENCE_S = scaled(30.0)
_LOCK = Path("/run/k8spilot-lab-dockerd.lock")


@dataclass(frozen=True)
class Dockerd:
    """A running dockerd."""

    socket: Path
    docker: Path
    """The docker command line of the same version."""


def ensure(settings: Settings, progress: Progress) -> Dockerd:
    """Start dockerd unless it runs; return when it answers. Raises LabError.

    It shares nothing with another dockerd of this machine: root, sockets, containerd and cgroup are its own. It makes
    no firewall rules, and its containers have no network unless they ask for NETWORK.
    """
    if settings.kubeconfig is not None:
        raise LabError("KUBECONFIG is set: a dockerd is started on the lab's own node only")
    machine.check_root()
    daemons = Daemons(settings)
    with _alone():
        programs = machine.unpack_packages(settings, progress, NAME, PACKAGES)
        folder = settings.state / NAME
        found = Dockerd(folder / "docker.sock", programs / "usr/bin/docker")
        if daemons.find(NAME) is None:
            _clear(folder)
            cgroups.make()
            daemons.start(_daemon(settings, programs, folder))
        daemons.wait_until(NAME, lambda: _answers(found), "dockerd does not answer", PATIENCE_S)
        if NETWORK not in run(found, "network", "ls", "--format", "{{.Name}}").split():
            run(found, "network", "create", f"--subnet={SUBNET}", f"--opt={_BRIDGE_OPTION}", NETWORK)
    return found


def stop(settings: Settings) -> None:
    """End dockerd with its containers, and remove all its files."""
    daemons = Daemons(settings)
    with _alone():
        if (process := daemons.find(NAME)) is not None:
            found = Dockerd(settings.state / NAME / "docker.sock", _unpacked(settings) / "usr/bin/docker")
            names = run(found, "ps", "--all", "--quiet").split()
            if names:
                run(found, "rm", "--force", "--volumes", *names)
            children = process.children(recursive=True)
            end([process])
            end(children)
        daemons.forget(NAME)
        _clear(settings.state / NAME)


def run(dockerd: Dockerd, *arguments: str) -> str:
    """Run the docker command line against `dockerd`; return its output. Raises LabError."""
    command: list[str | Path] = [dockerd.docker, "--host", f"unix://{dockerd.socket}", *arguments]
    return shell.run(command, what=f"docker {arguments[0]}", timeout=120)


def _daemon(settings: Settings, programs: Path, folder: Path) -> Daemon:
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "daemon.json"
    facts = {"insecure-registries": [settings.registry_address], "deprecated-key-path": str(folder / "key.json")}
    configuration.write_text(json.dumps(facts))
    # Its own containerd and shims come before the node's.
    search = f"{programs}/usr/bin:{programs}/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    options: dict[str, str | Path] = {
        "config-file": configuration,
        "host": f"unix://{folder}/docker.sock",
        "data-root": folder / "data",
        "exec-root": folder / "exec",
        "pidfile": folder / "pid",
        "init-path": programs / "usr/bin/tini-static",
        "userland-proxy-path": programs / "usr/sbin/docker-proxy",
        "cgroup-parent": f"/{CGROUP}/{NAME}",
        "bridge": "none",
        "iptables": "false",
        "ip6tables": "false",
        "ip-forward": "false",
        "ip-masq": "false",
    }
    argv = [f"--{name}={value}" for name, value in options.items()]
    return Daemon(NAME, ["/usr/bin/env", f"PATH={search}", programs / "usr/sbin/dockerd", *argv])


def _unpacked(settings: Settings) -> Path:
    return settings.cache / "programs" / NAME


def _answers(dockerd: Dockerd) -> bool:
    command: list[str | Path] = [dockerd.docker, "--host", f"unix://{dockerd.socket}", "version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _clear(folder: Path) -> None:
    """Remove the remains of a dockerd that has ended: mounts of its containers, and all files."""
    teardown.unmount_below(folder)
    teardown.remove_what_dockerd_makes()
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise LabError(f"{folder} could not be removed altogether: see what is left there")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time start or end it."""
    with _LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
