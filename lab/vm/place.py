"""Make a machine that has just started a place to work in: the checkout, its environment, the cache, the time it needs."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from lab import patience
from lab.settings import CHECKOUT
from lab.shell import run
from lab.vm.emulator import Machine
from lab.vm.luggage import CACHE, FILES, Luggage

HANDED_ON: Final = ("K8SPILOT_LAB_KUBERNETES", "K8SPILOT_LAB_HTCONDOR", "K8SPILOT_LAB_MIRROR", "TERM")
"""Variables that mean the same in the machine."""
_STARTS: Final = 3
"""How often the interpreter is started to see how fast the machine is."""


def prepare(machine: Machine, luggage: Luggage) -> None:
    """Send the checkout and what the luggage lacks, and put all in its place. Raises LabError."""
    machine.send(CHECKOUT, checkout_files(), CHECKOUT)
    machine.send(luggage.storage, sorted(luggage.later), CACHE / "registry")
    script = ["set -e"]
    for folder in luggage.folders:
        target = FILES / folder.relative_to("/")
        script.append(
            f"mkdir -p {shlex.quote(str(folder.parent))}; ln -sfn {shlex.quote(str(target))} {shlex.quote(str(folder))}"
        )
    script.append(
        f"touch {shlex.quote(sys.prefix)}/installed"
    )  # the checkout's files may be newer than the environment
    machine.run("\n".join(script), what="put the luggage in its place")


def checkout_files() -> list[Path]:
    """Return the files of the checkout: what git knows, and what it does not ignore."""
    listed = run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        what="list the checkout's files",
        cwd=CHECKOUT,
    )
    names = dict.fromkeys(Path(name) for name in listed.split("\0") if name)
    return [name for name in names if (CHECKOUT / name).is_file() or (CHECKOUT / name).is_symlink()]


def slowness(machine: Machine) -> float:
    """Return how many times longer a program takes in the machine than here, at least 1."""
    command = [sys.executable, "-c", "import json, asyncio"]
    words = shlex.join(command)
    loop = f"for _ in {' '.join('x' * _STARTS)}; do {words}; done"
    machine.run(words, what="start Python")  # it is read from the disk once
    there = float(
        machine.run(
            f"s=$(date +%s.%N); {loop}; e=$(date +%s.%N); echo \"$e $s\" | awk '{{print $1-$2}}'",
            what="see how fast it is",
        )
    )
    began = time.monotonic()
    for _ in range(_STARTS):
        subprocess.run(command, check=True)
    return max(1.0, round(there / (time.monotonic() - began), 1))


def script(command: str, slow: float) -> str:
    """Return a shell script that runs `command` in the machine's checkout."""
    values = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    values |= {"K8SPILOT_LAB_CACHE": str(CACHE), patience.VARIABLE: str(slow)}
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    return f"cd {shlex.quote(str(CHECKOUT))} && export {words} && {command}"
