"""Drivers for dynamic resource allocation on the lab's node, started on demand.

While one runs, pods get its devices by ResourceClaims. NVIDIA gives the lab's GPUs as NVIDIA's own driver does, which
needs a real GPU; its claims, devices and CDI specs are in lab/gpu/claims.py. EXAMPLE is the example driver of the
Kubernetes project, unchanged: its devices are environment variables, and no GPUs.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from lab import binaries, node
from lab.errors import LabError
from lab.gpu import claims
from lab.gpu import node as gpus
from lab.gpu.devices import Inventory
from lab.patience import scaled
from lab.processes import Daemon, Daemons, end
from lab.progress import Progress
from lab.settings import NODE_NAME, Settings
from lab.shell import run

EXAMPLE_DRIVER: Final = "gpu.example.com"
_PATIENCE_S: Final = scaled(60.0)

Json = dict[str, Any]


@dataclass(frozen=True)
class Driver:
    """A driver that the lab has."""

    name: str
    """Its name in Kubernetes."""
    module: binaries.Module
    program: str
    classes: tuple[Json, ...]
    """Its DeviceClasses."""

    @property
    def daemon(self) -> str:
        """The name of its process in the lab."""
        return f"dra-{self.name}"


NVIDIA: Final = Driver(claims.DRIVER, binaries.DRA, binaries.DRA.output, tuple(claims.classes()))
EXAMPLE: Final = Driver(
    EXAMPLE_DRIVER,
    binaries.DRA_EXAMPLE,
    "dra-example-kubeletplugin",
    (
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": EXAMPLE_DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{EXAMPLE_DRIVER}'"}}]},
        },
    ),
)


@contextmanager
def running(settings: Settings, progress: Progress, driver: Driver = NVIDIA) -> Iterator[None]:
    """Run a driver while the body runs. Pods that have its devices must have ended before. Raises LabError."""
    if settings.kubeconfig is not None:
        raise LabError("KUBECONFIG is set: the lab runs drivers of devices on its own node only")
    if driver is NVIDIA and gpus.REAL_DRIVER.exists():
        raise LabError("this machine has GPUs of its own, so the lab's node has none")
    (folder,) = binaries.ensure(settings, progress, [driver.module])
    stop(settings, driver)  # of a run that was killed
    daemons = Daemons(settings)
    try:
        _apply(settings, driver)
        daemons.start(Daemon(driver.daemon, _command(settings, driver, folder)))
        words = f"{driver.name} publishes no devices"
        daemons.wait_until(driver.daemon, lambda: _published(settings, driver), words, _PATIENCE_S, pause=0.2)
        yield
    finally:
        stop(settings, driver)


def stop(settings: Settings, driver: Driver) -> None:
    """End a driver, and remove the objects that it has published, also those of a killed run. Raises LabError."""
    daemons = Daemons(settings)
    if driver.daemon not in daemons.known():
        return
    end(daemons.living(driver.daemon))
    names = [one["metadata"]["name"] for one in driver.classes]
    _kubectl(settings, "delete", "deviceclass", *names, "--ignore-not-found")
    _kubectl(settings, "delete", "resourceslice", f"--field-selector=spec.driver={driver.name}")
    for spec in (settings.state / "cdi").glob(f"*{driver.name}[-_]*"):
        spec.unlink(missing_ok=True)
    daemons.stop(driver.daemon)  # forgotten last, so that what fails before is done again


def _apply(settings: Settings, driver: Driver) -> None:
    text = yaml.safe_dump_all(driver.classes)
    run([*node.kubectl(settings), "apply", "-f", "-"], what="make the device classes", stdin=text, timeout=60)


def _command(settings: Settings, driver: Driver, folder: Path) -> list[str | Path]:
    kubelet, specs = settings.state / "kubelet", settings.state / "cdi"
    if driver is EXAMPLE:
        options = {
            "kubeconfig": settings.admin_kubeconfig,
            "node-name": NODE_NAME,
            "cdi-root": specs,
            "num-devices": 2,
            "kubelet-registrar-directory-path": kubelet / "plugins_registry",
            "kubelet-plugins-directory-path": kubelet / "plugins",
        }
    else:
        made = gpus.stub(settings)
        table = settings.state / "gpu/claims.json"
        table.write_text(json.dumps(claims.table(Inventory.make(), str(made.library), str(made.settings.parent))))
        options = {
            "kubeconfig": settings.admin_kubeconfig,
            "node": NODE_NAME,
            "specs": specs,
            "kubelet": kubelet,
            "table": table,
        }
    return [folder / driver.program, *(f"--{name}={value}" for name, value in options.items())]


def _published(settings: Settings, driver: Driver) -> bool:
    """Return whether the devices are in a ResourceSlice, and the kubelet knows the driver's socket."""
    found = json.loads(_kubectl(settings, "get", "resourceslice", "-o", "json"))["items"]
    return any(one["spec"]["driver"] == driver.name and one["spec"].get("devices") for one in found)


def _kubectl(settings: Settings, *arguments: str) -> str:
    return run([*node.kubectl(settings), *arguments], what=f"kubectl {arguments[0]}", timeout=60)
