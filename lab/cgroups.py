"""The cgroup below which all containers of the lab run, on version 1 (one tree for each controller) and 2."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from lab.settings import CGROUP


def hierarchies() -> Iterator[tuple[Path, bool]]:
    """Give the mount point of every cgroup tree of this machine, and whether it is of version 2."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        kind = fields[fields.index("-") + 1]
        if kind in {"cgroup", "cgroup2"}:
            yield Path(fields[4]), kind == "cgroup2"


def below(folder: Path) -> Iterator[Path]:
    """Give all cgroups below a folder, parents first.

    Pods come and go meanwhile; Path.rglob fails when one that it has just seen is gone.
    """
    for path, _, _ in os.walk(folder):
        if path != str(folder):
            yield Path(path)


def make() -> None:
    """Make the lab's cgroup in every tree, with the controllers that the kubelet insists on."""
    for root, unified in hierarchies():
        own = root / CGROUP
        own.mkdir(exist_ok=True)
        if unified:
            _delegate(root)
            _delegate(own)
        for name in ("cpuset.cpus", "cpuset.mems"):
            # Version 1 gives a new cpuset nothing at all, and nothing can run there.
            if not unified and (own / name).exists() and not (own / name).read_text().strip():
                (own / name).write_text((root / name).read_text())


def processes(mark: str = "") -> list[psutil.Process]:
    """Return the processes of containers: all in the lab's cgroup, or those of cgroups with `mark` in their paths.

    Args:
        mark: a pod's uid, or a container's id.
    """
    found: set[int] = set()
    for root, _ in hierarchies():
        own = root / CGROUP
        if own.is_dir():
            for folder in (one for one in (own, *below(own)) if mark in str(one)):
                with contextlib.suppress(OSError):
                    found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
    alive = []
    for pid in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            alive.append(psutil.Process(pid))
    return alive


def of_pod(uid: str, file: str) -> list[Path]:
    """Return the cgroup folders of a pod, in each tree whose folders have `file`."""
    return _named(f"pod{uid}", file)


def of_container(identifier: str, file: str) -> list[Path]:
    """Return the cgroup folders of a container, in each tree whose folders have `file`."""
    return _named(identifier, file)


def _named(name: str, file: str) -> list[Path]:
    found = [one for root, _ in hierarchies() for one in below(root / CGROUP) if one.name == name]
    return [one for one in found if (one / file).exists()]


def remove() -> None:
    """Remove the lab's cgroup from every tree; its processes have ended before."""
    for root, _ in hierarchies():
        own = root / CGROUP
        if own.is_dir():
            for folder in sorted(below(own), key=lambda path: len(path.parts), reverse=True):
                _thaw(folder)
                folder.rmdir()
            own.rmdir()


def thaw() -> None:
    """Thaw frozen containers: a frozen process cannot be killed."""
    for root, _ in hierarchies():
        own = root / CGROUP
        if own.is_dir():
            for folder in below(own):
                _thaw(folder)


def _thaw(folder: Path) -> None:
    for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        if (folder / name).exists():
            with contextlib.suppress(OSError):
                (folder / name).write_text(word)


def _delegate(folder: Path) -> None:
    offered = (folder / "cgroup.controllers").read_text().split()
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    for controller in offered:
        if controller not in enabled:
            with contextlib.suppress(OSError):  # a controller that cannot be had is the kubelet's to complain about
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
