"""A pilot container with a wrong clock: a preloaded library shifts the time that its programs get from the kernel.

The machine's own clock does not change, so certificates, leases and logs of others stay right. Programs without a C
library (the docker CLI) and the times of files keep the right time, too.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import pilot
from lab.api import Lab
from lab.settings import HERE
from lab.shell import run

_SOURCE = HERE / "images/clock/clock.c"
_FOLDER = "/opt/clock"
_OFFSET = "/run/clock-offset"


@contextmanager
def movable(lab: Lab, pod: str) -> Iterator[list[dict[str, Any]]]:
    """Give the `patches` of an overlay for the pilot pod `pod`, whose clock can then be `shifted`. Raises LabError."""
    with operations(lab, pod) as found:
        yield [pilot.change(*found)]


@contextmanager
def operations(lab: Lab, pod: str, under: str = "") -> Iterator[list[dict[str, Any]]]:
    """Give the operations of a JSON patch that prepare the first container of a pod for shifts of its clock.

    Args:
        lab: the lab, with the pod's namespace.
        pod: a name for the ConfigMap with the library.
        under: path of the pod in the object that is patched, such as `/spec/template` in a Deployment.

    Raises LabError.
    """
    where = ("configmap", f"{pod}-clock", "-n", lab.namespace)
    files = [f"--from-literal=preload={_FOLDER}/clock.so"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "clock.so"
        how = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC"]
        run(["gcc", *how, "-o", library, _SOURCE], what="compile the library that shifts clocks")
        lab.kubectl("delete", *where, "--ignore-not-found")
        lab.kubectl("create", *where, *files, f"--from-file={library}")
    volume = {"name": "clock", "configMap": {"name": f"{pod}-clock", "defaultMode": 0o755}}
    mounts = [
        {"name": "clock", "mountPath": _FOLDER},
        {"name": "clock", "mountPath": "/etc/ld.so.preload", "subPath": "preload"},
    ]
    try:
        yield [
            {"op": "add", "path": f"{under}/spec/volumes/-", "value": volume},
            *({"op": "add", "path": f"{under}/spec/containers/0/volumeMounts/-", "value": one} for one in mounts),
        ]
    finally:
        lab.kubectl("delete", *where)


@contextmanager
def shifted(lab: Lab, pod: str, seconds: int, container: str = "pilot") -> Iterator[None]:
    """Let the clock of a container be wrong by `seconds`, and jump back afterwards. Raises LabError."""
    inside = ("exec", "-n", lab.namespace, pod, "-c", container, "--", "sh", "-c")
    lab.kubectl(*inside, f"echo {seconds} >{_OFFSET}.new && mv {_OFFSET}.new {_OFFSET}")
    try:
        yield
    finally:
        lab.kubectl(*inside, f"rm -f {_OFFSET}")
