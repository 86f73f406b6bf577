"""Program that prints the GPUs which a container sees, as one line of JSON.

Tests send the program to containers as text. So it imports no module of this project.
"""

import importlib
import json
import os
from pathlib import Path
from typing import Any

MOUNTS = Path("/var/run/nvidia-container-devices")


def variable(name: str) -> str | None:
    """A variable of the container's first process: who comes by exec has not what a runtime has changed of it."""
    lines = Path("/proc/1/environ").read_text().split("\0")
    return next((line.partition("=")[2] for line in lines if line.startswith(f"{name}=")), None)


def node(path: Path) -> dict[str, Any]:
    """The numbers of a node, and how opening it ends: no driver answers, so ENXIO says that it is allowed."""
    status = path.stat()
    try:
        os.close(os.open(path, os.O_RDWR))
        error = ""
    except OSError as problem:
        error = problem.strerror or str(problem)
    return {"number": [os.major(status.st_rdev), os.minor(status.st_rdev)], "error": error}


def nvml() -> dict[str, Any]:
    """The uuids of whole GPUs and of MIG instances that NVML has, and what it refuses."""
    n = importlib.import_module("pynvml")
    found: dict[str, Any] = {"gpus": [], "mig": [], "refused": 0, "busy": [], "error": ""}
    try:
        n.nvmlInit()
        for index in range(n.nvmlDeviceGetCount()):
            try:
                gpu = n.nvmlDeviceGetHandleByIndex(index)
            except n.NVMLError_NoPermission:
                found["refused"] += 1
                continue
            found["gpus"].append(n.nvmlDeviceGetUUID(gpu))
            for position in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                try:
                    instance = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position)
                except n.NVMLError_NotFound:
                    break
                found["mig"].append(n.nvmlDeviceGetUUID(instance))
            else:
                if not n.nvmlDeviceGetMigMode(gpu)[0]:
                    found["busy"].append(n.nvmlDeviceGetUtilizationRates(gpu).gpu)
    except n.NVMLError as problem:
        found["error"] = type(problem).__name__
    return found


def main() -> None:
    """Print all."""
    nodes = sorted([*Path("/dev").glob("nvidia[0-9c-]*"), *Path("/dev/nvidia-caps").glob("*")])
    seen = {
        "variable": variable("NVIDIA_VISIBLE_DEVICES"),
        "mounts": sorted(str(path.relative_to(MOUNTS)) for path in MOUNTS.rglob("*")),
        "nodes": {str(path): node(path) for path in nodes if path.is_char_device()},
        "nvml": nvml(),
    }
    print(json.dumps(seen))  # noqa: T201


if __name__ == "__main__":
    main()
