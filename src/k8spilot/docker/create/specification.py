"""From Docker's words to ours and back; no input or output here.

`docker create` sends an Engine API ContainerConfig with a HostConfig in it. What a pod can do is taken; what it cannot
do is refused with a sentence that reaches the user as the hold reason (options.py lists both).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from k8spilot.common.errors import Refused
from k8spilot.docker.create.devices import check_devices
from k8spilot.docker.create.options import check_options, check_shapes, short
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.model.command import Command
from k8spilot.model.image import Image

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", re.ASCII)

REMOVED: Final = (b"KUBERNETES_*",)
"""What Kubernetes adds to every container's environment, and no job expects."""

_COUNT: Final = re.compile(r"[0-9]{1,4}")
_TERMINAL: Final = "TERM=xterm"
"""What Docker adds to the environment of a command with a terminal (CreateDaemonEnvironment in moby)."""

_HTCONDOR_SHELL: Final = ("/bin/bash", "-i")
_PLAIN_SHELL: Final = b"/bin/sh"
"""What condor_ssh_to_job asks for (docker_proc.cpp, AcceptSSHClient), and what many images have in its place."""

_OWN_TEMPORARY: Final = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 -- the payload container's
"""What `mount_under_scratch` usually asks for: folders that every job finds empty here anyway."""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """What the payload container has, as far as a job can ask for it."""

    execute: str
    """The folder that it shares with HTCondor."""
    volumes: frozenset[str] = frozenset()
    """Where it has volumes mounted."""
    shared_memory: int = 0
    """Size of its /dev/shm in bytes."""
    used_ports: Callable[[], AbstractSet[int]] = frozenset
    """Looks up the TCP ports of the pod that are in use."""
    gpus: GpuRecord = field(default_factory=GpuRecord)
    """The devices that it has."""


@dataclass(frozen=True, slots=True)
class Specification:
    """A `docker create`, understood."""

    image: str
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    environment: tuple[str, ...]
    directory: str
    labels: Mapping[str, str]
    terminal: bool
    reads: bool
    """Whether it has a standard input."""
    removes_itself: bool
    ports: tuple[str, ...]
    """What it publishes, as `8080/tcp`."""
    asked: Mapping[str, Any]
    """The whole request, which `docker inspect` shows again."""

    @property
    def is_job(self) -> bool:
        """Whether HTCondor made it (docker-api.cpp, HTCONDOR_LABEL), and not somebody by hand."""
        return self.labels.get("org.htcondorproject") == "True"

    @property
    def gpus(self) -> int | None:
        """How many GPUs the job has asked HTCondor for; None where that is not told (condor/scripts/docker-client.sh).

        A job can have it say any number: that changes what it is told of GPUs that it has anyway.
        """
        told = self.labels.get("k8spilot.gpus", "")
        return int(told) if _COUNT.fullmatch(told) else None

    def resolve(self, image: Image) -> Command:
        """The command to run in `image`, by Docker's rules for entrypoint and command.

        Raises:
            Refused: neither names a program, or a text cannot be passed to one.
        """
        entrypoint = image.entrypoint if self.entrypoint is None else self.entrypoint
        command = self.command or (image.command if self.entrypoint is None else ())
        environment = [one for one in self.environment if "=" in one]
        if self.is_job and not any(one.startswith("HOME=") for one in environment):
            environment.append(f"HOME={self.directory or '/'}")
        if self.terminal and not any(one.startswith("TERM=") for one in environment):
            environment.append(_TERMINAL)
        removed = [_raw(one) for one in self.environment if "=" not in one]
        found = Command(
            arguments=tuple(_raw(one) for one in (*entrypoint, *command)),
            environment=tuple(_raw(one) for one in environment),
            removed=(*REMOVED, *removed),
            directory=_raw(self.directory or image.directory or "/"),
        )
        _check(found)
        return found


def specification(body: Mapping[str, Any], place: SlotLimits) -> Specification:
    """Understand the body of a `docker create`.

    Raises:
        Refused: it asks for what a pod cannot do.
    """
    check_options(body)
    host = body.get("HostConfig") or {}
    for bind in (*(host.get("Binds") or ()), *map(_as_bind, host.get("Mounts") or ())):
        _check_bind(bind, place)
    check_devices(host.get("Devices") or (), host.get("DeviceRequests") or (), place.gpus)
    if (wanted := host.get("ShmSize") or 0) > place.shared_memory:
        raise Refused(
            f"the job asks for {wanted} bytes of shared memory, and /dev/shm of the pod has {place.shared_memory}; ask "
            "for less, or the site for a larger one (docker option --shm-size)"
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
        ports=_ports(host.get("PortBindings") or {}, place),
        asked=body,
    )


def execution_command(job: Command, body: Mapping[str, Any], *, is_job: bool) -> Command:
    """The command of a `docker exec` beside `job`, in whose environment and directory it runs.

    Raises:
        Refused: it names no program, or a text cannot be passed to one.
    """
    check_shapes(body)
    arguments = _strings(body.get("Cmd")) or ()
    terminal = (_TERMINAL,) if body.get("Tty") else ()
    found = replace(
        job,
        arguments=tuple(_raw(one) for one in arguments),
        environment=(*job.environment, *(_raw(one) for one in (*terminal, *(_strings(body.get("Env")) or ())))),
        directory=_raw(str(body["WorkingDir"])) if body.get("WorkingDir") else job.directory,
        otherwise=_PLAIN_SHELL if is_job and arguments == _HTCONDOR_SHELL else None,
    )
    _check(found)
    return found


def check_name(name: str) -> None:
    """Raise Refused unless `name` is one that Docker takes (daemon/names in moby)."""
    if not _NAME.fullmatch(name):
        raise Refused(f"'{short(name)}' is not a container name; use letters, digits, _, . and -")


def _check_bind(bind: str, place: SlotLimits) -> None:
    source, _, rest = bind.partition(":")
    target, _, options = rest.partition(":")
    path = PurePosixPath(source)
    shared = path.is_relative_to(place.execute) and ".." not in path.parts
    there = (source == target and (shared or target in place.volumes)) or (shared and target in _OWN_TEMPORARY)
    if there and options in ("", "rw", "z", "Z"):
        return
    raise Refused(
        f"{source} cannot be mounted at {target}: a pod's volumes are fixed when it starts, and the job "
        "shares only its scratch folder with HTCondor; transfer the files instead, or ask the site for the volume "
        f"(docker option --volume {bind})"
    )


def _as_bind(mount: Mapping[str, Any]) -> str:
    """A mount as `docker --volume` has it."""
    return f"{mount.get('Source', '')}:{mount.get('Target', '')}" + (":ro" if mount.get("ReadOnly") else "")


def _ports(bindings: Mapping[str, Any], place: SlotLimits) -> tuple[str, ...]:
    """Ports to publish: a pod has an address of its own, at which each has the number that it has inside."""
    for port, hosts in bindings.items():
        number, _, protocol = port.partition("/")
        if not number.isdecimal() or not 0 < int(number) < 65536:
            raise Refused(f"'{short(port)}' is no port to publish")
        for host in hosts or ():
            if host.get("HostPort") not in ("", None, "0", number):
                raise Refused(
                    f"port {port} cannot be published as {host['HostPort']}: a pod's address has the container's own "
                    "ports; ask for the same number"
                )
        if protocol in ("", "tcp") and int(number) in place.used_ports():
            raise Refused(f"port {port} is in use by the execution point; let the service listen on another one")
    return tuple(bindings)


def _check(command: Command) -> None:
    try:
        command.encode()
    except ValueError as error:
        raise Refused(f"{error}; set executable and arguments in the submit file") from error


def _strings(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(str(one) for one in value)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
