"""The lab's daemons on this machine: start, find and stop them."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import psutil

from lab.errors import LabError
from lab.patience import scaled
from lab.settings import Settings
from lab.shell import check_cancelled, last_words

GRACE_S = scaled(5.0)
_GOGC: Final = "400"
"""Garbage collection at five times the heap in use: the daemons are written in Go, and the machine has the memory.
With the usual twice, the API server, the kubelet and the controller manager take a tenth more processor time."""

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's random name of this boot (random(4))."""


@dataclass(frozen=True)
class Daemon:
    """One program that runs as long as the lab does."""

    name: str
    argv: Sequence[str | Path]


class Daemons:
    """The daemons of one lab. The state folder has a record of each, which identifies its process."""

    _children: ClassVar[dict[str, subprocess.Popen[bytes]]] = {}
    """Child processes of this process, by name. They are kept here because a daemon outlives the object that started
    it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records = settings.state / "processes"

    def start(self, daemon: Daemon) -> bool:
        """Start `daemon` unless it runs; say whether it was started."""
        if self.find(daemon.name) is not None:
            return False
        self._records.mkdir(parents=True, exist_ok=True)
        self._settings.logs.mkdir(parents=True, exist_ok=True)
        if (ended := self._children.pop(daemon.name, None)) is not None:
            ended.wait()
        search = f"{self._settings.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        with self.log(daemon.name).open("ab") as log:
            process = subprocess.Popen(
                [str(argument) for argument in daemon.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env={"GOGC": _GOGC, **os.environ, "PATH": search},
            )
        self._children[daemon.name] = process
        (self._records / daemon.name).write_text(json.dumps(_identity(psutil.Process(process.pid))))
        return True

    def log(self, name: str) -> Path:
        """Return the file to which the daemon `name` writes its output."""
        return self._settings.logs / f"{name}.log"

    def find(self, name: str) -> psutil.Process | None:
        """Return the live process of the daemon `name`; None if it has ended, even if its number is another's now."""
        try:
            record = json.loads((self._records / name).read_text())
            process = psutil.Process(record["pid"])
            alive = _identity(process) == record and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, KeyError, psutil.Error):
            return None
        return process if alive else None

    def forget(self, name: str) -> None:
        """Forget the record of the daemon `name`, which has ended."""
        (self._records / name).unlink(missing_ok=True)

    def check(self, name: str) -> None:
        """Raise LabError if the daemon has ended: how, if it is this process's child, and its last words."""
        if self.find(name) is None:
            child = self._children.get(name)
            status = None if child is None else child.poll()
            how = "" if status is None else f" with status {status}" if status >= 0 else f" by {_named(-status)}"
            text = self.log(name).read_text(errors="replace") if self.log(name).exists() else ""
            words = last_words(text, 1) if text.strip() else "it said nothing"
            raise LabError(f"{name} has ended{how}: {words} (all of it: {self.log(name)})")

    def wait_until(
        self,
        name: str,
        condition: Callable[[], bool],
        words: str,
        seconds: float,
        *,
        pause: float = 0.05,
        others: Iterable[str] = (),
    ) -> None:
        """Return when `condition` holds; check it after each `pause`, in seconds.

        Raises LabError in three cases: the daemon `name`, or one of `others` that it needs, has ended; the condition
        does not hold within `seconds`, and `words` say what is wrong with `name`; the work is called off.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            check_cancelled()
            for one in dict.fromkeys((*others, name)):
                self.check(one)
            if time.monotonic() > deadline:
                raise LabError(f"{words} after {seconds:.0f} s (its log: {self.log(name)})")
            time.sleep(pause)

    def known(self) -> list[str]:
        """Names of all daemons that were ever started for this lab."""
        return sorted(path.name for path in self._records.iterdir()) if self._records.is_dir() else []

    def stop(self, name: str) -> None:
        """End the daemon `name` and forget it, as if it had never been; raise LabError if it does not end."""
        end(self.living(name))
        if (child := self._children.pop(name, None)) is not None:
            child.wait()
        (self._records / name).unlink(missing_ok=True)

    def living(self, *names: str) -> list[psutil.Process]:
        """The live processes of the daemons `names`, or of all daemons of this lab."""
        return [process for name in names or self.known() if (process := self.find(name)) is not None]


def _identity(process: psutil.Process) -> dict[str, object]:
    """Return what identifies a process: its id, its start in hundredths of a second after the boot, and the boot.

    psutil gives the start as a time of day, which changes when the clock is set. The time after the boot does not.
    """
    after_boot = round(100 * (process.create_time() - psutil.boot_time()))
    return {"pid": process.pid, "after_boot": after_boot, "boot": _BOOT.read_text().strip()}


def strays(settings: Settings) -> Iterator[psutil.Process]:
    """Find processes of any lab on this machine without a record: by program, or by shim address."""
    programs = f"{settings.cache / 'programs'}/"
    links = f"{settings.bin}/"
    for process in psutil.process_iter():
        try:
            argv = process.cmdline()
            executable = process.exe()
        except psutil.Error:
            continue
        if not argv or Path(argv[0]).name in {"kubectl", "ctr"}:
            continue
        own_program = executable.startswith(programs) or argv[0].startswith(links)
        own_argument = Path(argv[0]).name in {"containerd-shim-runc-v2", "conmon", "docker-registry"} and any(
            argument.startswith(f"{settings.state}/") for argument in argv
        )
        if own_program or own_argument:
            yield process


def end(processes: Iterable[psutil.Process], *, grace_s: float = GRACE_S) -> None:
    """Terminate processes (without grace: kill them), kill those that do not end, and return when all have ended."""
    alive = list(processes)
    if grace_s > 0:
        _signal(alive, signal.SIGTERM)
        alive = wait(alive, grace_s)
    _signal(alive, signal.SIGKILL)
    stuck = [process.pid for process in wait(alive, GRACE_S)]
    if stuck:
        raise LabError(f"processes {stuck} of the lab do not end even when killed; see what they wait for")


def wait(processes: list[psutil.Process], patience_s: float) -> list[psutil.Process]:
    """Return the processes that have not ended after `patience_s` seconds; a zombie counts as ended."""
    deadline = time.monotonic() + patience_s
    while True:
        processes = [process for process in processes if _lives(process)]
        if not processes or time.monotonic() > deadline:
            return processes
        time.sleep(0.02)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _named(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
