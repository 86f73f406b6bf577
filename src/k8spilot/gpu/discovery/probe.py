"""The probe: finds GPUs in its own container, and prints evidence as JSON.

The engine runs the probe in the payload container under the idle image, before the first job: its evidence can be
trusted then. The probe needs no settings, imports little, and works without GPUs.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from k8spilot.gpu.discovery import nvidia
from k8spilot.gpu.discovery.evidence import Driver, Evidence, Node

MOUNTS: Final = "var/run/nvidia-container-devices"
"""Folder in which NVIDIA's device plugin mounts /dev/null for each device, by its id (strategy volume-mounts)."""
VARIABLES: Final = ("NVIDIA_", "CUDA_", "CDI_", "ROCR_", "HIP_", "AMD_", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL")
_CGROUP: Final = ("sys/fs/cgroup/devices/devices.list", "sys/fs/cgroup/devices.list")
_MOST_LEVELS: Final = 6
_MOST_ENTRIES: Final = 1024


def probe(root: Path = Path("/"), environment: "os._Environ[str] | dict[str, str]" = os.environ) -> Evidence:
    """Return the evidence. `root` differs in tests only."""
    began = time.perf_counter()
    driver = nvidia.driver()
    files = root / nvidia.FILES.relative_to("/")
    if driver.error and not driver.version:
        driver = Driver(error=driver.error, version=nvidia.version(files))
    evidence = Evidence(
        variables={name: value for name, value in sorted(environment.items()) if name.startswith(VARIABLES)},
        mounts=tuple(sorted(_mounts(root / MOUNTS))),
        nodes=tuple(sorted(_nodes(root / "dev", root), key=lambda node: node.path)),
        cgroup=_cgroup(root),
        capabilities=_capabilities(root),
        groups=tuple(sorted(os.getgroups())),
        files=tuple(nvidia.files(files)),
        driver=driver,
    )
    return replace(evidence, seconds=round(time.perf_counter() - began, 4))


def _mounts(folder: Path) -> Iterator[str]:
    """Yield the paths of files and of empty folders below `folder`."""
    if not folder.is_dir():
        return
    for place, folders, names in os.walk(folder):
        here = Path(place).relative_to(folder)
        if len(here.parts) >= _MOST_LEVELS:
            folders.clear()
        yield from (str(here / name) for name in names)
        if not names and not folders and here.parts:
            yield str(here)


def _nodes(folder: Path, root: Path) -> Iterator[Node]:
    """Yield the device nodes of /dev, without terminals and other file systems."""
    pending, count = [folder], 0
    while pending and count < _MOST_ENTRIES:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                count += 1
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    path = Path(entry.path)
                    if stat.S_ISDIR(status.st_mode) and not path.is_mount():
                        pending.append(path)
                    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
                        yield Node(
                            f"/{path.relative_to(root)}",
                            "c" if stat.S_ISCHR(status.st_mode) else "b",
                            os.major(status.st_rdev),
                            os.minor(status.st_rdev),
                        )


def _cgroup(root: Path) -> tuple[str, ...] | None:
    for name in _CGROUP:
        with suppress(OSError):
            return tuple((root / name).read_text().splitlines())
    return None


def _capabilities(root: Path) -> int:
    with suppress(OSError):
        for line in (root / "proc/self/status").read_text().splitlines():
            if line.startswith("CapBnd:"):
                return int(line.split()[1], 16)
    return 0


def main() -> int:
    """Print the evidence."""
    json.dump(probe().json(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
