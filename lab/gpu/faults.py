"""Faults of GPUs on the node and in containers that the stub has no setting for. All are undone."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import cgroups
from lab.api import Lab
from lab.errors import LabError
from lab.gpu.devices import CAPS_MAJOR, MAJOR, UVM_MAJOR
from lab.settings import PILOT_NAMESPACE


@contextmanager
def grants_lost(lab: Lab, pod: str, container: str, namespace: str = PILOT_NAMESPACE) -> Iterator[None]:
    """Take the GPUs' nodes out of a running container's device cgroup; the nodes themselves and open files stay.

    A runtime does this to containers whose devices a hook has added, when it writes their cgroup anew
    (`systemctl daemon-reload`, a changed limit): NVML fails with UNKNOWN there. Needs version 1 of control groups.
    """
    folder = _cgroup(_id(lab, pod, container, namespace))
    majors = tuple(f"c {major}:" for major in (MAJOR, UVM_MAJOR, CAPS_MAJOR))
    rules = [line for line in (folder / "devices.list").read_text().splitlines() if line.startswith(majors)]
    if not rules:
        raise LabError(f"the container {container} of pod {pod} has been granted no GPU, so none can be taken from it")
    for rule in rules:
        (folder / "devices.deny").write_text(rule)
    try:
        yield
    finally:
        for rule in rules:
            with contextlib.suppress(OSError):  # the container has ended
                (folder / "devices.allow").write_text(rule)


def _id(lab: Lab, pod: str, container: str, namespace: str) -> str:
    status = json.loads(lab.kubectl("get", "pod", pod, "-n", namespace, "-o", "json"))["status"]
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    ids = {one["name"]: one.get("containerID", "") for kind in kinds for one in status.get(kind, [])}
    if not ids.get(container):
        raise LabError(f"the container {container} of pod {pod} has not been started yet")
    return str(ids[container].rpartition("/")[2])


def _cgroup(container: str) -> Path:
    for folder in cgroups.of_container(container, "devices.deny"):
        return folder
    raise LabError("this machine has no control groups of version 1 for devices: grants cannot be taken here")
