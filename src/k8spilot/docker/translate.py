"""From Docker's words to ours and back; no input or output here.

`docker create` sends an Engine API ContainerConfig with a HostConfig in it. What a pod can do is taken, what
changes nothing for the job is listed in `IGNORED` with the reason, and everything else is refused with a sentence
that reaches the user as the hold reason. Nothing is dropped in silence.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from k8spilot.docker.devices import check_devices
from k8spilot.errors import Refused
from k8spilot.gpu.found import Gpus
from k8spilot.model.command import Command
from k8spilot.model.image import Image

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", re.ASCII)

REMOVED: Final = (b"KUBERNETES_*",)
"""What Kubernetes adds to every container's environment, and no job expects."""

_TERMINAL: Final = "TERM=xterm"
"""What Docker adds to the environment of a command with a terminal (CreateDaemonEnvironment in moby)."""

_HTCONDOR_SHELL: Final = ("/bin/bash", "-i")
_PLAIN_SHELL: Final = b"/bin/sh"
"""What condor_ssh_to_job asks for (docker_proc.cpp, AcceptSSHClient), and what many images have in its place."""

IGNORED: Final = {
    "User": "jobs run under the payload container's uid, which the pod fixes",
    "GroupAdd": "as User",
    "Hostname": "a pod's containers share the pod's host name",
    "CpuShares": "the pod's own resources are the job's: one job at a time has them all",
    "CpusetCpus": "as CpuShares",
    "Memory": "as CpuShares; the slot's memory is the payload container's limit",
    "CapDrop": "the payload container has no capabilities",
    "SecurityOpt": "the payload container cannot gain privileges; other options are refused",
    "Init": "payload-init is what --init asks for",
    "LogConfig": "output goes to who is attached, as with the log driver none",
}
"""Options that HTCondor always gives and that the pod has settled already."""


_TAKEN: Final = frozenset(
    {"Image", "Entrypoint", "Cmd", "Env", "WorkingDir", "Labels", "HostConfig", "Binds", "Tty", "OpenStdin"}
    | {"ExposedPorts", "PortBindings", "AutoRemove", "ShmSize", "Devices", "DeviceRequests"}
    # What concerns the client alone, or says what _LIMITS checks once more.
    | {"AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce", "ConsoleSize", "ContainerIDFile", "NetworkingConfig"}
)

_DEFAULTS: Final = {"MemorySwappiness": -1, "CgroupnsMode": "private", "StopSignal": "SIGTERM"}
"""What clients send without having been asked to."""


_OWN_TEMPORARY: Final = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 -- the payload container's
"""What `mount_under_scratch` usually asks for: folders that every job finds empty here anyway."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the payload container has, as far as a job can ask for it."""

    execute: str
    """The folder that it shares with HTCondor."""
    volumes: frozenset[str] = frozenset()
    """Where it has volumes mounted."""
    shared_memory: int = 0
    """Size of its /dev/shm in bytes."""
    used_ports: Callable[[], AbstractSet[int]] = frozenset
    """Looks up the TCP ports of the pod that are in use."""
    gpus: Gpus = field(default_factory=Gpus)
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


def specification(body: Mapping[str, Any], place: Place) -> Specification:
    """Understand the body of a `docker create`.

    Raises:
        Refused: it asks for what a pod cannot do.
    """
    _check_shapes(body, _SHAPES)
    host = body.get("HostConfig") or {}
    for part in (body, host):  # "" and 0 are nothing here, whatever it is
        _check_shapes({key: value for key, value in part.items() if value}, _HOST_SHAPES)
    if not body.get("Image"):
        raise Refused("no image is named; set container_image or docker_image in the submit file")
    for key, (fine, reason) in _LIMITS.items():
        for part in (body, host):
            if part.get(key) and not fine(part[key]):
                raise Refused(f"{reason} (docker option {key}: {_short(part[key])})")
    for key, value in (*body.items(), *host.items()):
        if key not in _TAKEN | IGNORED.keys() | _LIMITS.keys() and value and value != _DEFAULTS.get(key):
            raise Refused(f"k8spilot does not serve the docker option {key} ({_short(value)})")
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
    _check_shapes(body, _SHAPES)
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
        raise Refused(f"'{_short(name)}' is not a container name; use letters, digits, _, . and -")


def _check_bind(bind: str, place: Place) -> None:
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


def _ports(bindings: Mapping[str, Any], place: Place) -> tuple[str, ...]:
    """Ports to publish: a pod has an address of its own, at which each has the number that it has inside."""
    for port, hosts in bindings.items():
        number, _, protocol = port.partition("/")
        if not number.isdecimal() or not 0 < int(number) < 65536:
            raise Refused(f"'{_short(port)}' is no port to publish")
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


def _nothing(_value: object) -> bool:
    return False


def _are_binds(mounts: Any) -> bool:
    """Whether all are as HTCondor asks for DOCKER_MOUNT_VOLUMES: `--mount type=bind,source=...,target=...`."""
    known = {"Type", "Source", "Target", "ReadOnly"}
    return all(isinstance(one, dict) and one.keys() <= known and one.get("Type") == "bind" for one in mounts)


def _one_of(*allowed: object) -> Callable[[Any], bool]:
    return lambda value: all(one in allowed for one in (value if isinstance(value, list) else [value]))


_LIMITS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "Volumes": (_nothing, "anonymous volumes are not to be had: a pod's volumes are fixed when it starts"),
    "Mounts": (
        _are_binds,
        "other mounts than those of folders are not to be had: a pod's volumes are fixed when it starts",
    ),
    "Tmpfs": (_nothing, "a tmpfs cannot be added: a pod's volumes are fixed when it starts; use /tmp"),
    "VolumesFrom": (_nothing, "volumes of another container are not to be had in a pod"),
    "Privileged": (_nothing, "a privileged container is not to be had: the pod has no privileges to give"),
    "CapAdd": (
        _one_of("SYS_PTRACE", "CAP_SYS_PTRACE"),
        "capabilities are not to be had: the pod has none to give",
    ),
    "SecurityOpt": (
        _one_of("no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"),
        "security options are the pod's and cannot be changed by a job",
    ),
    "NetworkMode": (
        _one_of("default", "bridge", "nat"),
        "the job has the pod's network and no other; leave docker_network_type unset in the submit file",
    ),
    "PublishAllPorts": (
        _nothing,
        "publish ports one by one: which ones an image exposes says nothing of which it serves",
    ),
    "ReadonlyRootfs": (_nothing, "a read-only root file system is the pod's to set"),
    "PidMode": (_one_of("private"), "the process namespace is the pod's and cannot be changed by a job"),
    "IpcMode": (
        _one_of("private", "shareable"),
        "the IPC namespace is the pod's and cannot be changed by a job",
    ),
    "UTSMode": (_nothing, "the host name is the pod's and cannot be changed by a job"),
    "UsernsMode": (_nothing, "the user namespace is the pod's and cannot be changed by a job"),
    "Runtime": (_nothing, "the container runtime is the node's and cannot be chosen by a job"),
    "Ulimits": (_nothing, "limits of processes are the pod's and cannot be changed by a job"),
    "Sysctls": (_nothing, "kernel settings are the pod's and cannot be changed by a job"),
    "Dns": (_nothing, "name resolution is the pod's and cannot be changed by a job"),
    "ExtraHosts": (_nothing, "name resolution is the pod's and cannot be changed by a job"),
    "Links": (_nothing, "links to other containers are not to be had in a pod"),
    "StorageOpt": (_nothing, "storage options are the node's and cannot be changed by a job"),
    "CgroupParent": (_nothing, "the control group is the pod's and cannot be changed by a job"),
    "RestartPolicy": (
        lambda value: value.get("Name", "") in ("", "no"),
        "HTCondor restarts jobs; docker's restart policy is not served",
    ),
}
"""Option (of the request or of its HostConfig) -> what of it is fine, and the sentence for everything else."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(one) for one in value)


def _is_text_or_texts(value: object) -> bool:
    return _is_text(value) or _are_texts(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_object_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(one) for pair in value.items() for one in pair)


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _are_bindings(value: object) -> bool:
    return isinstance(value, dict) and all(hosts is None or _are_objects(hosts) for hosts in value.values())


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


_Shapes = Mapping[str, tuple[Callable[[object], bool], str]]

_SHAPES: Final[_Shapes] = {
    "HostConfig": (_is_object, "an object"),
    "Image": (_is_text, "a text"),
    "Entrypoint": (_is_text_or_texts, "a list of texts"),
    "Cmd": (_is_text_or_texts, "a list of texts"),
    "Env": (_is_text_or_texts, "a list of texts"),
    "WorkingDir": (_is_text, "a text"),
    "Labels": (_is_object_of_texts, "an object of texts"),
    "Tty": (_is_flag, "true or false"),
    "OpenStdin": (_is_flag, "true or false"),
}
_HOST_SHAPES: Final[_Shapes] = {
    "AutoRemove": (_is_flag, "true or false"),
    "Binds": (_are_texts, "a list of texts"),
    "Mounts": (_are_objects, "a list of objects"),
    "PortBindings": (_are_bindings, "an object of lists of objects"),
    "RestartPolicy": (_is_object, "an object"),
    "ShmSize": (_is_size, "a number of bytes"),
}
"""What is taken of a request, and what each must be, in words too."""


def _check_shapes(part: Mapping[str, Any], shapes: _Shapes) -> None:
    for key, (fits, words) in shapes.items():
        if part.get(key) is not None and not fits(part[key]):
            raise Refused(f"the docker option {key} is to be {words} and is none ({_short(part[key])})")


def _strings(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(str(one) for one in value)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _short(value: object) -> str:
    text = str(value)[:81]
    return text if len(text) <= 80 else text[:77] + "..."
