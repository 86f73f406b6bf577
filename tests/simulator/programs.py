"""The native programs that the simulator needs, compiled for the occasion."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]


def _in(folder: str, *names: str) -> tuple[Path, ...]:
    return tuple(CHECKOUT / folder / f"{name}.c" for name in names)


SOURCES: Final = {
    "payload-init": _in("src/k8spilot/payload_init", "payload-init", "command", "packet", "scope", "wear", "keyrings"),
    "tidy": _in("src/k8spilot/payload_init", "tidy", "unlock", "measure"),
    "docker-client": _in("src/k8spilot/condor", "docker-client", "engine", "sandbox"),
    "engine-get": _in("src/k8spilot/condor", "engine-get"),
    "supervisor": _in("src/k8spilot/supervisor", "supervisor") + _in("src/k8spilot/payload_init", "keyrings"),
    "container": _in("tests/simulator", "container"),
    "hello": _in("lab/images/hello", "hello"),
}
"""Source files of each program."""
_OPTIONS: Final = {"docker-client": ("-DPAUSE_MS=50",)}
"""The programs' own: a client that asks again soon."""


@dataclass(frozen=True)
class Programs:
    """Paths of static executables."""

    payload_init: Path
    tidy: Path
    docker_client: Path
    engine_get: Path
    supervisor: Path
    container: Path
    hello: Path


def obstacle() -> str | None:
    """Why the simulator cannot run here, or None."""
    if os.geteuid() != 0:
        return "the simulator starts containers under uids of their own and needs root"
    if _compiler() is None:
        return "the simulator compiles payload-init and needs musl-gcc or gcc"
    return None


def build(folder: Path) -> Programs:
    """Compile the programs into `folder`, unless they are there."""
    compiler = _compiler()
    assert compiler is not None
    for name, sources in SOURCES.items():
        if not (folder / name).exists():
            _compile(compiler, folder / name, *_OPTIONS.get(name, ()), *sources)
    folder.chmod(0o755)
    return Programs(*(folder / name for name in SOURCES))


def build_tidy(target: Path, define: str, *additions: Path) -> None:
    """Compile tidy with a function of `additions` in the place of one of the C library, as `define` names them."""
    compiler = _compiler()
    assert compiler is not None
    others = [target.with_suffix(f".{addition.stem}.o") for addition in additions]
    for other, addition in zip(others, additions, strict=True):
        _compile(compiler, other, "-c", addition)
    _compile(compiler, target, define, *others, *SOURCES["tidy"])


def _compile(compiler: str, target: Path, *arguments: str | Path) -> None:
    options = ("-std=c11", "-static", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CHECKOUT}/src/k8spilot/payload_init")
    subprocess.run([compiler, *options, "-o", target, *arguments], check=True)


def _compiler() -> str | None:
    return shutil.which("musl-gcc") or shutil.which("gcc")
