"""The NVML stub: build it, and set its answers. Needs gcc, and neither a GPU nor root.

    driver = nvml.Driver([nvml.h200(0, "GPU-8f9c2d75-0000-4000-8000-000000000000")])
    stub = nvml.Stub.make(folder, driver)          # folder/libnvidia-ml.so.1 and folder/settings
    subprocess.run([python, "-c", "import pynvml; ..."], env={**os.environ, **stub.environment})
    with stub.change() as driver:                  # programs that run see it at their next call
        driver.gpu(0).failures["*"] = nvml.GPU_IS_LOST

A process that has loaded a libnvidia-ml.so.1 keeps it: load pynvml in a process of its own.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from lab.errors import LabError
from lab.shell import run

SOURCES = Path(__file__).resolve().parent / "stub"
LIBRARY = "libnvidia-ml.so.1"
EVERY_FUNCTION = "*"

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
GPU_IS_LOST = 15
LIBRARY_MISMATCH = 18
UNKNOWN = 999

MIB = 2**20


@dataclass
class Process:
    """A process that has a context on a device."""

    pid: int
    """Process id in the PID namespace of NVML's caller: the stub does not translate it."""
    memory_bytes: int = 0
    utilisation: int = 0
    """Share of the time in which it uses the device, in per cent."""


@dataclass
class Device:
    """Common properties of GPUs and MIG instances."""

    uuid: str
    """With its prefix: GPU-... or MIG-..."""
    name: str
    memory_bytes: int
    multiprocessors: int
    used_bytes: int = 0
    processes: list[Process] = field(default_factory=list)
    utilisation: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    """Steps of the load: begin (seconds since 1970) and per cent. Rates, samples and GPM follow from them."""
    failures: dict[str, int] = field(default_factory=dict)
    """NVML error with which a function fails for this device, by the function's C name; EVERY_FUNCTION stands for
    all."""

    def busy(self, percent: float, since_s: float | None = None) -> None:
        """Set the load to `percent` from now on, or from `since_s` (seconds since 1970)."""
        self.utilisation.append((time.time() if since_s is None else since_s, percent))
        del self.utilisation[:-60]  # the stub keeps 64


@dataclass
class Mig(Device):
    """One MIG instance: a GPU instance with one compute instance."""

    gpu_instance: int = 0
    compute_instance: int = 0
    slices: int = 1
    caps: tuple[int, ...] = ()
    """Minor numbers of /dev/nvidia-caps/nvidia-cap<n>. A process that may open all of them has the instance."""


@dataclass
class Gpu(Device):
    """One whole GPU, in MIG mode if it has instances."""

    minor: int = 0
    """Number of its node /dev/nvidia<minor>, the character device 195:<minor>."""
    bus_id: str = "00000000:01:00.0"
    capability: str = "9.0"
    cores: int = 0
    clock_mhz: int = 1980
    ecc: bool = True
    gpm: bool = True
    power_mw: int = 70_000
    temperature_c: int = 35
    memory_utilisation: int = 0
    instances: list[Mig] = field(default_factory=list)


@dataclass
class Driver:
    """The driver and its GPUs."""

    gpus: list[Gpu] = field(default_factory=list)
    version: str = "580.159.04"
    cuda: int = 13_000
    epoch: int = 1
    """Number of the driver's load. A change means that the driver was reloaded: users of NVML must initialise it
    again."""
    nodes: str = ""
    """Folder with the devices' nodes: a process sees only the devices that it may open, as with a real driver.

    Empty: all processes see all devices.
    """
    failures: dict[str, int] = field(default_factory=dict)
    """Like Device.failures, for the whole driver: {"nvmlInitWithFlags": DRIVER_NOT_LOADED}."""

    def gpu(self, which: int | str) -> Gpu:
        """Return the GPU at a position, or of a uuid. Raises LookupError."""
        if isinstance(which, int):
            return self.gpus[which]
        return next(gpu for gpu in self.gpus if gpu.uuid == which)

    def mig(self, uuid: str) -> Mig:
        """Return the MIG instance of a uuid."""
        return next(mig for gpu in self.gpus for mig in gpu.instances if mig.uuid == uuid)


_DRIVER = TypeAdapter(Driver)


def h200(minor: int, uuid: str) -> Gpu:
    """Return a whole H200, idle."""
    return Gpu(
        uuid,
        "NVIDIA H200",
        143_771 * MIB,
        132,
        minor=minor,
        bus_id=f"00000000:{minor + 1:02X}:00.0",
        cores=16_896,
    )


def slice_of_h200(number: int, uuid: str, caps: tuple[int, ...] = ()) -> Mig:
    """Return a MIG instance of an H200: 1g.18gb, idle."""
    return Mig(uuid, "NVIDIA H200 MIG 1g.18gb", 16_384 * MIB, 16, gpu_instance=7 + number, caps=caps)


@dataclass(frozen=True)
class Stub:
    """A folder with the library, and one with its settings, which can be mounted into containers."""

    library: Path
    settings: Path

    @classmethod
    def make(cls, folder: Path, driver: Driver) -> "Stub":
        """Build the stub in `folder`, with the answers of `driver`. Raises LabError."""
        stub = cls(folder / LIBRARY, folder / "settings/settings")
        stub.settings.parent.mkdir(parents=True, exist_ok=True)
        build(stub.library)
        stub.write(driver)
        return stub

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which a program loads the stub instead of a real NVML."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVML_STUB_SETTINGS": str(self.settings)}

    def read(self) -> Driver:
        """Return the driver that was written last."""
        return _DRIVER.validate_json(self._memory.read_bytes())

    def write(self, driver: Driver) -> None:
        """Let the stub answer as `driver` says. The change is atomic for readers."""
        _replace(self._memory, _DRIVER.dump_json(driver))
        _replace(self.settings, render(driver).encode())

    @contextmanager
    def change(self) -> Iterator[Driver]:
        """Give the driver that was written last, and write it at the end of the block. Other processes wait."""
        with self._memory.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            driver = self.read()
            yield driver
            self.write(driver)

    @property
    def _memory(self) -> Path:
        return self.library.parent / "driver.json"


def build(library: Path) -> None:
    """Compile the stub to the file `library`. Raises LabError."""
    if shutil.which("gcc") is None:
        raise LabError("the NVML stub is written in C, and this machine has no gcc: install it (`make lab` does so)")
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        fresh = Path(folder) / LIBRARY
        options = [
            "-shared",
            "-fPIC",
            "-O2",
            "-std=gnu11",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
            "-Werror",
        ]
        linked = ["-pthread", f"-Wl,-soname,{LIBRARY}", "-o", str(fresh)]
        sources = sorted(SOURCES.glob("*.c"))
        run(["gcc", *options, *map(str, sources), *linked], what=f"compile {SOURCES}")
        fresh.replace(library)


def render(driver: Driver) -> str:
    """Return the settings file: lines of a key and a value. `gpu` and `mig` begin a device.

    A MIG instance follows its GPU. `fail` has a function and an error, `utilisation` per cent and its begin, `process`
    id, bytes and per cent.
    """
    lines = [
        f"driver {driver.version}",
        f"cuda {driver.cuda}",
        f"epoch {driver.epoch}",
        f"nodes {driver.nodes}",
        *_failures(driver.failures),
    ]
    for gpu in driver.gpus:
        lines += [f"gpu {gpu.uuid}", *_common(gpu), *_own(gpu)]
        for mig in gpu.instances:
            lines += [f"mig {mig.uuid}", *_common(mig), f"gpu_instance {mig.gpu_instance}"]
            lines += [f"compute_instance {mig.compute_instance}", f"slices {mig.slices}"]
            lines += [f"cap {number}" for number in mig.caps]
            lines += [f"capability {gpu.capability}", f"gpm {_flag(gpu.gpm)}"]
    return "\n".join(lines) + "\n"


def _own(gpu: Gpu) -> list[str]:
    return [
        f"minor {gpu.minor}",
        f"bus {gpu.bus_id}",
        f"capability {gpu.capability}",
        f"cores {gpu.cores}",
        f"clock_mhz {gpu.clock_mhz}",
        f"ecc {_flag(gpu.ecc)}",
        f"gpm {_flag(gpu.gpm)}",
        f"power_mw {gpu.power_mw}",
        f"temperature {gpu.temperature_c}",
        f"memory_utilisation {gpu.memory_utilisation}",
        f"mig_mode {_flag(bool(gpu.instances))}",
    ]


def _common(device: Device) -> list[str]:
    return [
        f"name {device.name}",
        f"memory {device.memory_bytes}",
        f"used {device.used_bytes}",
        f"multiprocessors {device.multiprocessors}",
        *(f"utilisation {percent} {since_s:.6f}" for since_s, percent in device.utilisation),
        *(f"process {one.pid} {one.memory_bytes} {one.utilisation}" for one in device.processes),
        *_failures(device.failures),
    ]


def _failures(failures: dict[str, int]) -> list[str]:
    return [f"fail {function} {code}" for function, code in failures.items()]


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _replace(target: Path, content: bytes) -> None:
    number, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    fresh = Path(name)
    fresh.chmod(0o644)
    fresh.replace(target)
