"""The machine: qemu emulates it, ssh logs in to it. It runs until `stop`.

Its disks are not changed: its writes are lost at its end. Only its port for ssh on the loopback interface can be
reached, and it reaches nothing outside of itself.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from lab import patience
from lab.errors import LabError
from lab.processes import Daemon, Daemons
from lab.settings import Settings
from lab.shell import run
from lab.vm.system import System

STATE: Final = Path("/var/lib/k8spilot-vm")
NAME: Final = "qemu"
CPUS: Final = 2
MEMORY_MIB: Final = 8192
PATIENCE_S: Final = 300.0
"""Time limit from the start to ssh, in seconds. Under emulation, it takes ten seconds to a minute."""
ACCELERATOR: Final = "K8SPILOT_VM_ACCEL"
"""Name of the variable with qemu's accelerator. Default: tcg, since a /dev/kvm may be there and not work."""
_USUAL: Final = "tcg,thread=multi,tb-size=1024"
PACKAGES: Final = {
    "openssh-client": "/usr/bin/ssh",
    "e2fsprogs": "/sbin/mke2fs",
}
"""This computer's packages for disks and ssh, each with a file that shows that it is installed."""
_EMULATED_SLOWNESS: Final = 8.0
"""Default factor of time limits. Python starts seven times slower under tcg, and a new process needs more than that."""
_PROCESSOR: Final = "max,la57=off"
_KERNEL: Final = (
    "console=ttyS0 quiet net.ifnames=0 systemd.show_status=0 "
    "mitigations=off tsc=reliable preempt=none rcupdate.rcu_expedited=1 audit=0"
)
"""Kernel parameters. An emulated processor spends less time with four levels of page tables (`la57=off`), a clock that
the kernel trusts, a kernel without preemption, and expedited RCU, on which the removal of network namespaces waits."""


class EndedError(LabError):
    """Raised when the machine has ended by itself."""


@dataclass(frozen=True)
class Machine:
    """A running machine. Its methods raise LabError."""

    state: Path
    key: Path
    port: int

    @property
    def slowness(self) -> float:
        """Factor of time limits in the machine (lab/patience.py), unless the environment here sets one."""
        usual = _EMULATED_SLOWNESS if _accelerator().startswith("tcg") else 1.0
        return float(os.environ.get(patience.VARIABLE) or usual)

    def ssh(self, *options: str) -> list[str | Path]:
        """Return the beginning of a command line that logs in to the machine as root."""
        ways = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
            "ConnectTimeout": "30",
            "ControlMaster": "auto",
            "ControlPath": str(self.state / "ssh"),
            "ControlPersist": "600",
        }
        settings = [word for name, value in ways.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-i", self.key, "-p", str(self.port), *settings, *options, "root@127.0.0.1"]

    def run(self, script: str, *, what: str, timeout: float | None = None) -> str:
        """Run a shell script in the machine; return its output."""
        return run([*self.ssh(), script], what=f"{what} in the machine", timeout=timeout)

    def follow(self, script: str, output: IO[bytes] | None = None) -> int:
        """Run a shell script in the machine, its output here or in a file; return its exit status."""
        return subprocess.run(
            [*self.ssh(), script], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        ).returncode

    def send(self, folder: Path, names: Iterable[str | Path], target: Path) -> None:
        """Copy files below `folder` into the machine's folder `target`."""
        listed = "\0".join(map(str, names)).encode()
        pack = ["tar", "--create", "--directory", str(folder), "--null", "--no-recursion", "--files-from", "-"]
        unpack = [str(word) for word in self.ssh()] + [f"mkdir -p {target} && tar --extract --directory {target}"]
        with subprocess.Popen(pack, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as packing:
            assert packing.stdin is not None
            with subprocess.Popen(unpack, stdin=packing.stdout) as unpacking:
                packing.stdin.write(listed)
                packing.stdin.close()
        if packing.returncode or unpacking.returncode:
            raise LabError(f"could not copy files of {folder} into the machine")

    def fetch(self, source: Path, target: Path) -> None:
        """Copy the machine's folder `source` here, as the folder `target`."""
        target.mkdir(parents=True, exist_ok=True)
        pack = [str(word) for word in self.ssh()] + [f"tar --create --directory {source} ."]
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
            unpacking = subprocess.run(["tar", "--extract", "--directory", target], stdin=packing.stdout, check=False)
        if packing.returncode or unpacking.returncode:
            raise LabError(f"could not copy {source} out of the machine")


def start(settings: Settings, system: System, disks: Sequence[Path]) -> Machine:
    """Start the machine, in the place of one that runs; return when ssh answers. Raises LabError."""
    stop(settings)
    STATE.mkdir(parents=True)
    STATE.chmod(0o700)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    machine = Machine(STATE, system.key, port)
    (STATE / "machine.json").write_text(json.dumps({"key": str(system.key), "port": port}))
    daemons = _daemons(settings)
    try:
        daemons.start(Daemon(NAME, _command(system, disks, port)))
        _wait(machine, daemons)
    except BaseException:
        keep_logs(settings, settings.cache / "logs")
        stop(settings)
        raise
    return machine


def keep_logs(settings: Settings, folder: Path) -> None:
    """Copy the machine's console and the emulator's log into `folder`, since `stop` removes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in (STATE / "console.log", _daemons(settings).log(NAME)):
        with contextlib.suppress(OSError):
            shutil.copy(log, folder / f"vm-{log.name}")


def check(settings: Settings) -> None:
    """Raise EndedError if the machine has ended by itself: it crashed, or the emulator did."""
    try:
        _daemons(settings).check(NAME)
    except LabError as problem:
        raise EndedError(str(problem)) from problem


def running(settings: Settings) -> Machine:
    """Return the machine that runs. Raises LabError if none does."""
    if _daemons(settings).find(NAME) is None:
        raise LabError("no machine runs: start one with `make vm`")
    facts = json.loads((STATE / "machine.json").read_text())
    return Machine(STATE, Path(facts["key"]), facts["port"])


def stop(settings: Settings) -> None:
    """End the machine, if one runs, and remove what is left of it."""
    daemons = _daemons(settings)
    if (STATE / "ssh").exists():
        subprocess.run(
            ["ssh", "-F", "none", "-o", f"ControlPath={STATE}/ssh", "-O", "exit", "root@127.0.0.1"],
            capture_output=True,
            check=False,
        )
    daemons.stop(NAME)
    shutil.rmtree(STATE, ignore_errors=True)


def _daemons(settings: Settings) -> Daemons:
    return Daemons(replace(settings, state=STATE))


def _command(system: System, disks: Sequence[Path], port: int) -> list[str | Path]:
    drives = [f"file={disk},format=raw,if=virtio,cache=unsafe,snapshot=on" for disk in (system.disk, *disks)]
    return [
        *system.emulator,
        *("-accel", _accelerator(), "-cpu", _PROCESSOR, "-smp", str(CPUS), "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{STATE}/console.log"),
        *("-kernel", system.kernel, "-initrd", system.initrd, "-append", _KERNEL),
        *(word for drive in drives for word in ("-drive", drive)),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
        *("-device", "virtio-net-pci,netdev=net,romfile="),
    ]


def _accelerator() -> str:
    return os.environ.get(ACCELERATOR) or _USUAL


def _wait(machine: Machine, daemons: Daemons) -> None:
    """Return when ssh answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        daemons.check(NAME)
        try:
            machine.run("true", what="look", timeout=60)
        except LabError as problem:
            if time.monotonic() > deadline:
                raise LabError(f"the machine does not answer after {PATIENCE_S:.0f} s: {problem}") from problem
            time.sleep(0.5)
        else:
            return
