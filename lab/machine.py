"""Requirements of this machine, checked and installed before a node is built on it."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from lab.errors import LabError
from lab.processes import Daemons
from lab.progress import Progress
from lab.settings import (
    API_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    KUBELET_PORT,
    MINIMUM_FREE_GIB,
    NODE_ADDRESS,
    PROXY_METRICS_PORT,
    REGISTRY_PORT,
    Settings,
)
from lab.shell import run

PACKAGES = {
    "runc": "/usr/sbin/runc",  # for buildah and dockerd; the node has its own
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "skopeo": "/usr/bin/skopeo",
    "buildah": "/usr/bin/buildah",
    "mmdebstrap": "/usr/bin/mmdebstrap",
    "busybox-static": "/bin/busybox",
    "iptables": "/usr/sbin/iptables",
    "iproute2": "/sbin/ip",
    "curl": "/usr/bin/curl",
    "gcc": "/usr/bin/gcc",
    "musl-tools": "/usr/bin/musl-gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "libseccomp-dev": "/usr/include/seccomp.h",
    "pkgconf": "/usr/bin/pkg-config",
}
"""Distribution packages of the lab, each with a file that shows that it is installed."""
_OF_CRIO = {"conmon": "/usr/bin/conmon"}
"""Further packages that CRI-O needs."""

MODULES = {"overlay": "/sys/module/overlay", "br_netfilter": "/proc/sys/net/bridge"}
"""Modules of the kernel, each with a path that shows that it is there. A kernel may have them built in.

Without br_netfilter, the answers of a Service bypass the rules of kube-proxy where both pods are on one node."""

PORTS = {
    "kube-apiserver": (NODE_ADDRESS, API_PORT),
    "kubelet": (NODE_ADDRESS, KUBELET_PORT),
    "registry": (NODE_ADDRESS, REGISTRY_PORT),
    "etcd": ("127.0.0.1", ETCD_PORT),
    "etcd ": ("127.0.0.1", ETCD_PEER_PORT),
    "kube-proxy": ("127.0.0.1", PROXY_METRICS_PORT),
}
"""Addresses and ports at which the lab's daemons listen."""


def check_root() -> None:
    """Raise LabError unless we are root."""
    if os.geteuid() != 0:
        raise LabError("the lab makes bridges, mounts and cgroups: run it as root (or set KUBECONFIG to a cluster)")


def check(settings: Settings) -> None:
    """Raise LabError with one sentence if a node cannot be built on this machine."""
    check_root()
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise LabError(f"the lab runs on Linux on x86_64 only, this is {platform.system()} on {platform.machine()}")
    if shutil.which("apt-get") is None:
        raise LabError("the lab installs what it needs with apt-get, which this machine does not have: use Debian 12")
    for folder in {settings.cache, settings.state}:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free / 2**30
        if free < MINIMUM_FREE_GIB:
            raise LabError(
                f"the disk below {folder} has {free:.1f} GiB free and the lab needs {MINIMUM_FREE_GIB} GiB: make room"
            )


def check_ports(daemons: Daemons) -> None:
    """Raise LabError if another program uses a port of one of our daemons that are not running."""
    listeners = {
        (connection.laddr.ip, connection.laddr.port): connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
    }
    for name, (address, port) in PORTS.items():
        if daemons.find(name.strip()) is not None:
            continue
        for wildcard in (address, "0.0.0.0", "::"):  # noqa: S104
            if (wildcard, port) in listeners:
                raise LabError(
                    f"{name.strip()} needs port {port}, which {_describe(listeners[wildcard, port])} listens on: "
                    "end that first"
                )


def ensure_packages(settings: Settings, progress: Progress) -> None:
    """Install the distribution packages of the lab that are missing."""
    install(settings, progress, {**PACKAGES, **(_OF_CRIO if settings.runtime_daemon == "crio" else {})})


def install(settings: Settings, progress: Progress, packages: Mapping[str, str]) -> None:
    """Install those of `packages` (names, each with a file of it) that are missing. Raises LabError.

    apt's lists are fetched only if they must be.
    """
    missing = [package for package, witness in packages.items() if not Path(witness).exists()]
    if not missing:
        return
    what = f"install {', '.join(missing)}"
    with progress.step(what):
        _apt_get(settings, "install", ["--yes", "--no-install-recommends", *missing], what)


def load_modules() -> None:
    """Load the kernel's modules that nothing loads by itself; a kernel without modules has all or can do without."""
    for name, witness in MODULES.items():
        if not Path(witness).exists() and shutil.which("modprobe") is not None:
            subprocess.run(["modprobe", "--quiet", name], check=False)


def download_packages(settings: Settings, packages: Sequence[str], target: Path) -> None:
    """Fetch the archives of `packages` into `target`; nothing is installed. Raises LabError."""
    what = f"fetch {', '.join(packages)}"
    # As root: its own user for fetching may not come to the folder.
    _apt_get(settings, "download", ["--option", "APT::Sandbox::User=root", *packages], what, cwd=target)


def unpack_packages(settings: Settings, progress: Progress, name: str, packages: Sequence[str]) -> Path:
    """Return the cache's folder `name` with the unpacked `packages`; fetch them if it is not there. Raises LabError."""
    target = settings.cache / "programs" / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
    try:
        with progress.step(f"fetch {name}"):
            fresh.chmod(0o755)
            download_packages(settings, packages, fresh)
            for package in fresh.glob("*.deb"):
                run(["dpkg-deb", "--extract", package, fresh], what=f"unpack {package.name}")
                package.unlink()
        fresh.replace(target)
    except OSError:
        if not target.is_dir():  # another process was faster
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _apt_get(settings: Settings, verb: str, arguments: Sequence[str], what: str, cwd: Path | None = None) -> None:
    """Run apt-get; when it fails, fetch its lists and try again."""
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    logs = settings.cache / "logs"
    command = ["apt-get", verb, *arguments]
    try:
        run(command, what=what, log=logs / f"apt-{verb}.log", env=env, cwd=cwd)
    except LabError:
        _update(logs / "apt-update.log", env)
        run(command, what=what, log=logs / f"apt-{verb}.log", env=env, cwd=cwd)


def _update(log: Path, env: dict[str, str]) -> None:
    """Fetch apt's lists; a source that fails is no reason to give up unless none is left."""
    try:
        run(["apt-get", "update", "--error-on=any"], what="fetch the lists of packages", log=log, env=env)
    except LabError:
        lists = [path for path in Path("/var/lib/apt/lists").glob("*_Packages*") if path.is_file()]
        if not lists:
            raise


def apt_mirror() -> str:
    """Return the Debian mirror that this machine's own apt uses."""
    answer = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in answer.stdout.splitlines():
        uri, _, rest = line.partition(" ")
        if rest.startswith("Debian main") and "security" not in uri:
            return uri
    raise LabError(
        "no Debian mirror is among this machine's apt sources: name one that has forky in K8SPILOT_LAB_MIRROR"
    )


def _describe(pid: int | None) -> str:
    if pid is None:
        return "another process"
    try:
        words = " ".join(psutil.Process(pid).cmdline()).split()
        return f"process {pid} ({' '.join(words)[:80]})"
    except psutil.Error:
        return f"process {pid}"
