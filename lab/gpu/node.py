"""GPUs on the lab's node: character devices, the library, CDI specs, the device plugin and the runtime classes.

They are there whenever the lab is up. A pod that requests no GPU has nothing of them. The programs: lab/go/gpu.
"""

import contextlib
import json
import os
import stat
from pathlib import Path

import yaml

from lab import node
from lab.gpu import nvml
from lab.gpu.devices import CAPS_MAJOR, MAJOR, UVM_MAJOR, Inventory, Node
from lab.images import digest_of
from lab.processes import Daemon, Daemons
from lab.settings import Settings
from lab.shell import run

PLUGIN = "nvidia-device-plugin"
RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
"""As NVIDIA's operator makes them; each is also the name of its handler in config/containerd.toml."""

REAL_DRIVER = Path("/proc/driver/nvidia")
CAPS = Path("/dev/nvidia-caps")
PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Folder in which the kubelet listens for plugins, whatever its --root-dir says."""


def ensure(settings: Settings, daemons: Daemons) -> None:
    """Give the node its GPUs, if the API server answers; what is there already stays. Raises LabError.

    On a machine with GPUs of its own nothing is done: the nodes have the same names.
    """
    if REAL_DRIVER.exists():
        return
    folder = settings.state / "gpu"
    folder.mkdir(exist_ok=True)
    inventory = Inventory.make()
    for device in inventory.all_nodes:
        _make(device)
    witness = folder / "key"
    key = digest_of([], [Path(__file__).parent])
    changed = not witness.exists() or witness.read_text() != key
    if changed:
        _write(settings, inventory)
        _add_runtime_classes(settings)
    _start_plugin(settings, daemons, anew=changed)
    witness.write_text(key)


def stub(settings: Settings) -> nvml.Stub:
    """Return the NVML stub of the node's GPUs.

    `with gpus.stub(lab.settings).change() as driver:` changes its answers in all containers.
    """
    folder = settings.state / "gpu"
    return nvml.Stub(folder / nvml.LIBRARY, folder / "settings/settings")


def remove() -> None:
    """Remove everything outside of the lab's own folder; the kubelet and the plugin have ended before."""
    if not REAL_DRIVER.exists():
        _remove_nodes()
    for path in PLUGINS.glob("k8spilot-lab-*.sock"):
        path.unlink(missing_ok=True)
    for name in ("kubelet.sock", "kubelet_internal_checkpoint"):
        (PLUGINS / name).unlink(missing_ok=True)
    for empty in (PLUGINS, PLUGINS.parent):
        with contextlib.suppress(OSError):  # another's, or there is none
            empty.rmdir()


def _remove_nodes() -> None:
    for path in [*Path("/dev").glob("nvidia*"), *CAPS.glob("*")]:
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in {MAJOR, UVM_MAJOR, CAPS_MAJOR}:
            path.unlink()
    with contextlib.suppress(OSError):
        CAPS.rmdir()


def _make(device: Node) -> None:
    path = Path(device.path)
    path.parent.mkdir(exist_ok=True)
    number = os.makedev(device.major, device.minor)
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == number:
            return
        path.unlink()
    os.mknod(path, stat.S_IFCHR, number)
    path.chmod(0o666)


def _write(settings: Settings, inventory: Inventory) -> None:
    """Write the files of the library, the plugin, the runtimes and containerd."""
    folder = settings.state / "gpu"
    made = nvml.Stub.make(folder, inventory.driver)
    library, answers = str(made.library), str(made.settings.parent)
    specs = settings.state / "cdi"
    specs.mkdir(exist_ok=True)
    table = inventory.table(library, answers, str(specs))
    _replace(folder / "table.json", table)
    _replace(specs / "k8s.device-plugin.nvidia.com-gpu.json", inventory.cdi(library, answers))


def _replace(target: Path, content: object) -> None:
    fresh = target.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1))
    fresh.replace(target)


def _add_runtime_classes(settings: Settings) -> None:
    documents = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        for name in RUNTIME_CLASSES
    ]
    text = yaml.safe_dump_all(documents)
    run([*node.kubectl(settings), "apply", "-f", "-"], what="make the runtime classes", stdin=text, timeout=60)


def _start_plugin(settings: Settings, daemons: Daemons, *, anew: bool) -> None:
    """Run the plugin of the folder bin with the present table; `anew` replaces one that runs."""
    program = settings.bin / PLUGIN
    running = daemons.find(PLUGIN)
    if running is not None and (anew or Path(running.exe()) != program.resolve()):
        daemons.stop(PLUGIN)
    daemons.start(Daemon(PLUGIN, [program]))
