"""A disk with files that the machine's lab would need hours to make: the node's programs, images, Python's environment.

The disk is written without emulation, and replaced only when something large in it changes. It lacks files that have
come into the registry since, such as the newest layers of the project's image: the running machine gets these
(`later`).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from lab import binaries, machine, registry, testbed
from lab.errors import LabError
from lab.images import Images, digest_of
from lab.processes import Daemon, Daemons
from lab.progress import Progress
from lab.settings import DEBIAN_SUITE, NODE_ADDRESS, REGISTRY_PORT, RUNTIME, Settings
from lab.shell import run
from lab.vm import registry_files, system

MOUNTED: Final = Path("/luggage")
"""Mount point in the machine."""
CACHE: Final = MOUNTED / "cache"
"""The cache of the machine's lab (K8SPILOT_LAB_CACHE)."""
FILES: Final = MOUNTED / "files"
"""Folder with copies of folders that have the same paths in the machine as here."""
DISK_GIB: Final = 24
RECIPE: Final = "2"
"""Raise this number to make the disk anew."""
LEFT_AT_HOME: Final = ("bench", "htcondor-", "k8spilot-provisioner")
"""Beginnings of the names of images that stay here: they are large, and no test in the machine needs them."""
_REGISTRY: Final = f"{NODE_ADDRESS}:{REGISTRY_PORT}"
_PATIENCE_S: Final = 30.0
_CONTAINERD: Final = """\
version = 3
root = "{root}"
state = "{state}"
disabled_plugins = [
    "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
]
[grpc]
  address = "{socket}"
"""
_HOSTS: Final = 'server = "http://{address}"\n[host."http://{address}"]\n  capabilities = ["pull", "resolve"]\n'


@dataclass(frozen=True)
class Luggage:
    """The disk, and the files that its registry lacks."""

    disk: Path
    storage: Path
    """Storage of the registry on this computer."""
    later: frozenset[Path]
    """Files of the storage that the disk lacks."""
    folders: tuple[Path, ...]
    """Folders below FILES, by their paths on this computer."""


@dataclass(frozen=True)
class _Contents:
    programs: tuple[Path, ...]
    folders: tuple[Path, ...]
    images: dict[str, list[str]]
    """Names and tags of the lab's own images, the tag of the content last. The node shall have them unpacked."""
    files: frozenset[Path]
    """Files of the registry's storage."""

    def key(self) -> str:
        """Return a digest of the names of the large contents. The disk is made anew when it changes."""
        large = [f"{name}:{tags[-1]}" for name, tags in self.images.items() if name != "k8spilot"]
        installed = sorted(f"{one.name} {one.version}" for one in distributions())
        names = [*(path.name for path in self.programs), *map(str, self.folders), *large, *installed]
        return digest_of([RECIPE, str(DISK_GIB), sys.version, *names])


def ensure(settings: Settings, progress: Progress) -> Luggage:
    """Return the disk, made anew if necessary; build the project's image of this checkout. Raises LabError."""
    settings = replace(settings, kubeconfig=None, image=None, registry=None, runtime=RUNTIME)
    own = replace(settings, state=settings.cache / "vm/packing")
    storage, root = settings.cache / "registry", settings.cache / "vm/root"
    shutil.rmtree(root, ignore_errors=True)
    try:
        with testbed.alone(settings, progress):  # a lab that starts meanwhile would take our daemons for another lab's
            machine.check(settings)
            machine.ensure_packages(settings, progress)
            programs = [*binaries.of_node(settings, progress), registry.program(settings, progress).parents[2]]
            with _serving(own, progress) as address:
                images = _images(replace(settings, registry=address), progress)
                contents = _Contents(tuple(programs), _environment(), images, _files(storage, images))
                folder = settings.cache / f"vm/luggage-{contents.key()}"
                if not folder.is_dir():
                    with progress.step("gather programs and images for the machine"):
                        _gather(own, contents, storage, address, root)
        if not folder.is_dir():
            with progress.step("make the machine's disk of programs and images"):
                binaries.once(folder, lambda fresh: _pack(contents, root, fresh))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    binaries.forget_others(folder)
    packed = {Path(name) for name in json.loads((folder / "files.json").read_text())}
    later = frozenset(contents.files - packed) | registry_files.are_tags(contents.files)
    return Luggage(folder / "disk.img", storage, later, contents.folders)


def _files(storage: Path, images: dict[str, list[str]]) -> frozenset[Path]:
    """Return the registry's files for the disk: the named tags of `images`, and all tags of the tests' images."""
    names = {name for name in registry_files.names(storage) if not name.startswith(LEFT_AT_HOME)}
    chosen = [(name, tag) for name in names for tag in images.get(name) or registry_files.tags(storage, name)]
    return frozenset(path for name, tag in chosen for path in registry_files.of_image(storage, name, tag))


def _images(settings: Settings, progress: Progress) -> dict[str, list[str]]:
    """Ensure the lab's images in the registry; return their names and tags."""
    builder = Images(settings, progress)
    makers = (builder.pause, builder.hello, builder.busybox, builder.base, builder.htcondor, builder.project)
    exact = [make().rpartition("/")[2].split(":") for make in makers]
    others = {"debian": [DEBIAN_SUITE], "hello": ["latest"], "busybox": ["latest"], "k8spilot": ["latest"]}
    return {name: [*others.get(name, ()), tag] for name, tag in exact}


def _environment() -> tuple[Path, ...]:
    """Return the folders of the Python environment that runs this: its own, and its Python's. Raises LabError."""
    own, base = Path(sys.prefix), Path(sys.base_prefix)
    if own == base or base == Path("/usr"):
        raise LabError(
            "the machine has no such Python: make an environment with `make venv`, of a Python outside of /usr"
        )
    return own, base


@contextmanager
def _serving(own: Settings, progress: Progress) -> Iterator[str]:
    """Run a registry with the lab's images on the loopback interface while the body runs."""
    daemons = Daemons(own)
    own.state.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    try:
        registry.serve(own, daemons, progress, address)
        yield address
    finally:
        daemons.stop(registry.NAME)
        shutil.rmtree(own.state)


def _gather(own: Settings, contents: _Contents, storage: Path, address: str, root: Path) -> None:
    """Fill the folder `root` with the contents of the disk."""
    cache = root / CACHE.relative_to(MOUNTED)
    for folder in contents.programs:
        _take(folder, cache / "programs" / folder.name)
    for folder in contents.folders:
        _take(folder, root / FILES.relative_to(MOUNTED) / folder.relative_to("/"))
    for path in contents.files:
        target = cache / "registry" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(str(storage / path), str(target))
    _unpack(own, contents, address, cache / "containerd")


def _pack(contents: _Contents, root: Path, fresh: Path) -> None:
    """Make the disk, and the list of the registry's files on it."""
    (fresh / "files.json").write_text(json.dumps(sorted(map(str, contents.files))))
    _compile(root / FILES.relative_to(MOUNTED))
    system.make_disk(root, fresh / "disk.img", DISK_GIB)


def _compile(files: Path) -> None:
    """Compile the environment's modules, which takes minutes in the machine. Errors of single files are ignored."""
    how = ["-q", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash", "-s", str(files), "-p", "/"]
    subprocess.run([sys.executable, "-m", "compileall", *how, str(files)], capture_output=True, check=False)


def _take(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    """Make a hard link to a file; copy the file where that fails."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _unpack(own: Settings, contents: _Contents, address: str, root: Path) -> None:
    """Unpack the images into `root`, a containerd's folder, as the node's containerd does."""
    programs = next(folder for folder in contents.programs if folder.name.startswith("containerd-"))
    daemons, name = Daemons(own), "containerd"
    point = own.state / "containerd.sock"
    configuration = own.state / "containerd.toml"
    configuration.write_text(_CONTAINERD.format(root=root, state=own.state / "containerd", socket=point))
    hosts = own.state / "hosts" / _REGISTRY
    hosts.mkdir(parents=True)
    (hosts / "hosts.toml").write_text(_HOSTS.format(address=address))
    try:
        daemons.start(Daemon(name, [programs / "containerd", "--config", configuration]))
        deadline = time.monotonic() + _PATIENCE_S
        while not point.exists():
            daemons.check(name)
            if time.monotonic() > deadline:
                raise LabError(f"containerd does not answer after {_PATIENCE_S:.0f} s (its log: {daemons.log(name)})")
            time.sleep(0.05)
        pull: list[str | Path]
        pull = [
            programs / "ctr",
            "--address",
            point,
            "--namespace",
            "k8s.io",
            "images",
            "pull",
            "--hosts-dir",
            hosts.parent,
        ]
        for image in (f"{name}:{tag}" for name, tags in contents.images.items() for tag in tags):
            if image != "k8spilot:latest":  # it will be another one
                run([*pull, f"{_REGISTRY}/{image}"], what=f"unpack {image}")
    finally:
        daemons.stop(name)
