"""Translation of a `docker create` into a specification; no I/O.

`docker create` sends a ContainerConfig of the Engine API with a HostConfig. Options that a pod supports are translated.
Other options are refused with a sentence that becomes the user's hold reason (options.py lists both).
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from k8spilot.common.errors import Refused
from k8spilot.docker.create_request.devices import check_devices
from k8spilot.docker.create_request.options import check_options, check_shapes, short
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.model.command import Command
from k8spilot.model.disk import MIB, LastRun
from k8spilot.model.image import Image
from k8spilot.model.slot_sizes import IDLE, Size
from k8spilot.payload.disk_meter import DiskMeter
from k8spilot.payload.disk_watch import DiskShare

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", re.ASCII)

REMOVED: Final = (b"KUBERNETES_*",)
"""Variables that Kubernetes adds to every container's environment, which no job expects."""

_MILLI_OF_SHARE: Final = 10
"""Thousandths of a CPU for each share."""
_KIBIBYTES: Final = re.compile(r"[0-9]{1,15}")
_COUNT: Final = re.compile(r"[0-9]{1,4}")
_TERMINAL: Final = "TERM=xterm"
"""Variable that Docker adds to the environment of a command with a terminal (CreateDaemonEnvironment in moby)."""

_HTCONDOR_SHELL: Final = ("/bin/bash", "-i")
_PLAIN_SHELL: Final = b"/bin/sh"
"""Shell of condor_ssh_to_job (docker_proc.cpp, AcceptSSHClient), and its replacement in images without bash."""

_OWN_TEMPORARY: Final = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 -- in the payload container
"""Usual folders of `mount_under_scratch`, which are empty for every job anyway."""


async def _never(_run: LastRun) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Resources of the payload container that a job can request."""

    execute: str
    """Folder that it shares with HTCondor."""
    volumes: frozenset[str] = frozenset()
    """Mount paths of its volumes."""
    shared_memory: int = 0
    """Size of its /dev/shm in bytes."""
    used_ports: Callable[[], AbstractSet[int]] = frozenset
    """Returns the TCP ports of the pod that are in use."""
    gpus: GpuRecord = field(default_factory=GpuRecord)
    """Its GPUs."""
    disk: int | None = None
    """Disk that the slot promises, in bytes; None if it has no limit."""
    disk_meter: DiskMeter | None = None
    """Meter of the disk that jobs use; None for an engine that cannot see their files."""
    pod_disk: int | None = None
    """Disk in bytes at which the kubelet evicts the pod."""
    hold_seconds: float = 0.0
    """Seconds to wait until HTCondor holds a job that uses more disk than it may."""
    evicted: Callable[[LastRun], Coroutine[Any, Any, str]] = _never
    """Returns why the pod of a job's last run was evicted for the disk that it used; or an empty text."""


@dataclass(frozen=True, slots=True)
class Specification:
    """A parsed `docker create`. Its representation has nothing in which users pass secrets."""

    image: str
    entrypoint: tuple[str, ...] | None = field(repr=False)
    command: tuple[str, ...] = field(repr=False)
    environment: tuple[str, ...] = field(repr=False)
    directory: str
    labels: Mapping[str, str]
    terminal: bool
    reads: bool
    """Whether the command has a standard input."""
    removes_itself: bool
    ports: tuple[str, ...]
    """Published ports, such as `8080/tcp`."""
    body: Mapping[str, Any] = field(repr=False)
    """The whole request, which `docker inspect` returns."""
    size: Size | None = None
    """CPU and memory that HTCondor has promised to a job; None if they are not known."""
    disk: DiskShare | None = None
    """Disk that a job may use; None if it is not measured."""

    @property
    def is_job(self) -> bool:
        """Whether HTCondor created the container (docker-api.cpp, HTCONDOR_LABEL), and not a person."""
        return self.labels.get("org.htcondorproject") == "True"

    @property
    def gpus(self) -> int | None:
        """Number of GPUs that the job requested from HTCondor; None if unknown (condor/sandbox.c).

        A job can set any number. That changes only the list of GPUs in its environment: it has all of them anyway.
        """
        label = self.labels.get("k8spilot.gpus", "")
        return int(label) if _COUNT.fullmatch(label) else None

    @property
    def requested_disk(self) -> int | None:
        """Disk in bytes that the job requested from HTCondor; None if unknown. A job can set any number, too."""
        label = self.labels.get("k8spilot.disk", "")
        return int(label) * 1024 if _KIBIBYTES.fullmatch(label) else None

    def resolve(self, image: Image) -> Command:
        """Return the command to run in `image`, by Docker's rules for entrypoint and command.

        Raises:
            Refused: there is no program, or a text cannot be passed to one.
        """
        entrypoint = image.entrypoint if self.entrypoint is None else self.entrypoint
        command = self.command or (image.command if self.entrypoint is None else ())
        environment = [text for text in self.environment if "=" in text]
        if self.is_job and not any(text.startswith("HOME=") for text in environment):
            environment.append(f"HOME={self.directory or '/'}")
        if self.terminal and not any(text.startswith("TERM=") for text in environment):
            environment.append(_TERMINAL)
        removed = [_raw(text) for text in self.environment if "=" not in text]
        result = Command(
            arguments=tuple(_raw(text) for text in (*entrypoint, *command)),
            environment=tuple(_raw(text) for text in environment),
            removed=(*REMOVED, *removed),
            directory=_raw(self.directory or image.directory or "/"),
        )
        _check(result)
        return result


def specification(body: Mapping[str, Any], slot: SlotLimits) -> Specification:
    """Parse the body of a `docker create`.

    Raises:
        Refused: a pod cannot fulfil it.
    """
    check_options(body)
    host = body.get("HostConfig") or {}
    for bind in (*(host.get("Binds") or ()), *map(_as_bind, host.get("Mounts") or ())):
        _check_bind(bind, slot)
    check_devices(host.get("Devices") or (), host.get("DeviceRequests") or (), slot.gpus)
    if (requested := host.get("ShmSize") or 0) > slot.shared_memory:
        raise Refused(
            f"the job requests {requested} bytes of shared memory, but /dev/shm of the pod has {slot.shared_memory}; "
            "request less, or ask the site for a larger /dev/shm (docker option --shm-size)"
        )
    return Specification(
        image=str(body["Image"]),
        entrypoint=_strings(body.get("Entrypoint")),
        command=_strings(body.get("Cmd")) or (),
        environment=_strings(body.get("Env")) or (),
        directory=str(body.get("WorkingDir") or ""),
        labels=dict(body.get("Labels") or {}),
        terminal=bool(body.get("Tty")),
        reads=bool(body.get("OpenStdin")),
        removes_itself=bool(host.get("AutoRemove")),
        ports=_ports(host.get("PortBindings") or {}, slot),
        body=body,
        size=_size(host),
    )


def _size(host: Mapping[str, Any]) -> Size | None:
    """Return the size of HTCondor's slot: 100 shares for each CPU, and its memory (docker-api.cpp, createContainer).

    A job can request no CPU. It gets what an idle container has.
    """
    shares, memory = host.get("CpuShares") or 0, host.get("Memory") or 0
    if not all(isinstance(value, int) and value >= 0 for value in (shares, memory)) or memory == 0:
        return None
    return Size(max(shares * _MILLI_OF_SHARE, IDLE.cpu), -(-memory // MIB))


def execution_command(job: Command, body: Mapping[str, Any], *, is_job: bool) -> Command:
    """Return the command of a `docker exec` beside `job`, in the job's environment and directory.

    Raises:
        Refused: there is no program, or a text cannot be passed to one.
    """
    check_shapes(body)
    if isinstance(body.get("Cmd"), str):  # allowed for a container only (strslice.StrSlice in moby)
        raise Refused("Cmd of a docker exec must be a list of texts")
    arguments = _strings(body.get("Cmd")) or ()
    terminal = (_TERMINAL,) if body.get("Tty") else ()
    result = replace(
        job,
        arguments=tuple(_raw(text) for text in arguments),
        environment=(*job.environment, *(_raw(text) for text in (*terminal, *(_strings(body.get("Env")) or ())))),
        directory=_raw(str(body["WorkingDir"])) if body.get("WorkingDir") else job.directory,
        otherwise=_PLAIN_SHELL if is_job and arguments == _HTCONDOR_SHELL else None,
    )
    _check(result)
    return result


def check_name(name: str) -> None:
    """Check a container's name by Docker's rules (daemon/names in moby).

    Raises:
        Refused: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise Refused(f"'{short(name)}' is not a container name; use letters, digits, _, . and -")


def _check_bind(bind: str, slot: SlotLimits) -> None:
    source, _, remainder = bind.partition(":")
    target, _, options = remainder.partition(":")
    path = PurePosixPath(source)
    shared = path.is_relative_to(slot.execute) and ".." not in path.parts
    is_available = (source == target and (shared or target in slot.volumes)) or (shared and target in _OWN_TEMPORARY)
    if is_available and options in ("", "rw", "z", "Z"):
        return
    raise Refused(
        f"{source} cannot be mounted at {target}: a pod's volumes are fixed when it starts, and the job "
        "shares only its scratch folder with HTCondor; transfer the files instead, or ask the site for the volume "
        f"(docker option --volume {bind})"
    )


def _as_bind(mount: Mapping[str, Any]) -> str:
    """Return a mount in the format of `docker --volume`."""
    return f"{mount.get('Source', '')}:{mount.get('Target', '')}" + (":ro" if mount.get("ReadOnly") else "")


def _ports(bindings: Mapping[str, Any], slot: SlotLimits) -> tuple[str, ...]:
    """Return the ports to publish. A pod has its own address, where each port has the number that it has inside."""
    for port, hosts in bindings.items():
        number, _, protocol = port.partition("/")
        if not number.isdecimal() or not 0 < int(number) < 65536:
            raise Refused(f"'{short(port)}' is not a port that can be published")
        for host in hosts or ():
            if host.get("HostPort") not in ("", None, "0", number):
                raise Refused(
                    f"port {port} cannot be published as {host['HostPort']}: a pod's address has the container's own "
                    "ports; publish it with the same number"
                )
        if protocol in ("", "tcp") and int(number) in slot.used_ports():
            raise Refused(f"port {port} is in use by the execution point; let the service listen on another port")
    return tuple(bindings)


def _check(command: Command) -> None:
    try:
        command.encode()
    except ValueError as error:
        raise Refused(f"{error}; set executable and arguments in the submit file") from error


def _strings(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(str(text) for text in value)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
