"""Preparation of a machine that has just started: the checkout, its environment, the cache."""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

from lab import patience
from lab.settings import CHECKOUT
from lab.shell import run
from lab.vm.emulator import Machine
from lab.vm.luggage import CACHE, FILES, Luggage

HANDED_ON: Final = (
    "K8SPILOT_LAB_KUBERNETES",
    "K8SPILOT_LAB_HTCONDOR",
    "K8SPILOT_LAB_COMPONENTS",
    "K8SPILOT_LAB_MIRROR",
    "TERM",
)
"""Environment variables that are passed on to the machine."""


def prepare(machine: Machine, luggage: Luggage) -> None:
    """Send the checkout and the files that the luggage lacks, and put all in place. Raises LabError."""
    machine.send(CHECKOUT, checkout_files(), CHECKOUT)
    machine.send(luggage.storage, sorted(luggage.later), CACHE / "registry")
    lines = ["set -e"]
    for folder in luggage.folders:
        source, target = shlex.quote(str(FILES / folder.relative_to("/"))), shlex.quote(str(folder))
        lines.append(f"mkdir -p $(dirname {target}); ln -sfn {source} {target}")
    # The checkout's files may be newer than the environment.
    lines.append(f"touch {shlex.quote(sys.prefix)}/installed")
    machine.run("\n".join(lines), what="put the luggage in its place")


def checkout_files() -> list[Path]:
    """Return the files of the checkout: those that git tracks, and those that it does not ignore."""
    listed = run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        what="list the checkout's files",
        cwd=CHECKOUT,
    )
    names = dict.fromkeys(Path(name) for name in listed.split("\0") if name)
    return [name for name in names if (CHECKOUT / name).is_file() or (CHECKOUT / name).is_symlink()]


def script(command: str, machine: Machine) -> str:
    """Return a shell script that runs `command` in the machine's checkout."""
    values = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    values |= {"K8SPILOT_LAB_CACHE": str(CACHE), patience.VARIABLE: str(machine.slowness)}
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    return f"cd {shlex.quote(str(CHECKOUT))} && export {words} && {command}"
