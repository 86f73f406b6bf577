"""An emulated machine with cgroup v2 and systemd: python -m lab.vm up, ssh, run, down, test.

python -m lab.vm up                 start it, with this checkout in it, and print how to go in
python -m lab.vm ssh                go into it
python -m lab.vm run -- COMMAND     run a command in its checkout, such as `make demo`
python -m lab.vm down               end it; nothing of it remains but the cache
python -m lab.vm test               start one, run the demo and the chosen tests in it, and end it
"""

import argparse
import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from lab import machine
from lab.command_line import exit_code
from lab.errors import LabError
from lab.progress import Progress
from lab.settings import CHECKOUT, RUNTIME, Settings
from lab.vm import emulator, luggage, place, stories, system
from lab.vm.emulator import Machine

LOCK: Final = Path("/run/k8spilot-vm.lock")


def main() -> int:
    """Do what the command line says; return the exit code."""
    asked = _parser().parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    return exit_code("lab.vm", lambda: _run(asked))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.vm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (("up", "start it"), ("ssh", "go into it"), ("down", "end it")):
        commands.add_parser(name, help=words)
    run = commands.add_parser("run", help="run a command in its checkout")
    run.add_argument("words", nargs="+", metavar="COMMAND")
    test = commands.add_parser("test", help="the demo and the chosen tests")
    test.add_argument("options", nargs="*", help="of pytest, after `--`, in the place of the chosen tests")
    return parser


def _run(asked: argparse.Namespace) -> int:
    settings = Settings.from_environment()
    if asked.command == "down":
        emulator.stop(settings)
        return 0
    if asked.command == "up":
        with _alone():
            _up(settings)
        go_in = f"{sys.executable} -m lab.vm"
        print(f"The machine runs; this checkout is in it, in {CHECKOUT}.\n  {go_in} ssh\n  {go_in} run -- make demo")
        print("`make vm-down` ends it.")
        return 0
    if asked.command == "ssh":
        shell = place.script("exec bash -l", emulator.running(settings))
        return subprocess.run([*emulator.running(settings).ssh("-t"), shell], check=False).returncode
    if asked.command == "run":
        found = emulator.running(settings)
        return found.follow(place.script(shlex.join(asked.words), found))
    with _alone():
        try:
            return _test(settings, asked.options)
        finally:
            emulator.stop(settings)


def _test(settings: Settings, options: Sequence[str]) -> int:
    """Run the stories. If the emulator ends, which is no fault of a test, run them once more in another machine."""
    try:
        return stories.run(settings, _up(settings), options)
    except emulator.EndedError as problem:
        print(f"lab.vm: {problem}; once more, in another machine", file=sys.stderr, flush=True)
    return stories.run(settings, _up(settings), options)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time start a machine. Raises LabError."""
    machine.check_root()
    with LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise LabError("another `make vm` or `make test-vm` is at work: wait for its end") from problem
        yield


def _up(settings: Settings) -> Machine:
    """Start a machine that is ready for commands, in the place of one that runs. Raises LabError."""
    if settings.runtime != RUNTIME:
        raise LabError(f"the emulated machine has {RUNTIME} alone: unset K8SPILOT_LAB_RUNTIME")
    machine.check(settings)
    with Progress(settings.cache / "durations.json") as progress:
        machine.install(settings, progress, {**machine.PACKAGES, **emulator.PACKAGES})
        basis = system.ensure(settings, progress)
        disk = luggage.ensure(settings, progress)
        with progress.step("start the machine"):
            found = emulator.start(settings, basis, [disk.disk])
        try:
            with progress.step("send the checkout into the machine"):
                place.prepare(found, disk)
        except BaseException:
            emulator.stop(settings)
            raise
    return found


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
