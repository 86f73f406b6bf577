"""From Docker's words to ours and back; no input or output here.

`docker create` sends an Engine API ContainerConfig with a HostConfig in it. What a pod can do is taken, what
changes nothing for the job is listed in `IGNORED` with the reason, and everything else is refused with a sentence
that reaches the user as the hold reason. Nothing is dropped in silence.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from k8spilot.errors import Refused
from k8spilot.model.command import Command
from k8spilot.model.image import Image

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", re.ASCII)

REMOVED: Final = (b"KUBERNETES_*",)
"""What Kubernetes adds to every container's environment, and no job expects."""

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
    {"Image", "Entrypoint", "Cmd", "Env", "WorkingDir", "Labels", "HostConfig", "Binds"}
    # What concerns the client alone, or says what _LIMITS checks once more.
    | {"AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce", "ConsoleSize", "ContainerIDFile", "NetworkingConfig"}
)

_DEFAULTS: Final = {"MemorySwappiness": -1, "CgroupnsMode": "private", "StopSignal": "SIGTERM"}
"""What clients send without having been asked to."""


@dataclass(frozen=True, slots=True)
class Specification:
    """A `docker create`, understood."""

    image: str
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    environment: tuple[str, ...]
    directory: str
    labels: Mapping[str, str]
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
        removed = [_raw(one) for one in self.environment if "=" not in one]
        found = Command(
            arguments=tuple(_raw(one) for one in (*entrypoint, *command)),
            environment=tuple(_raw(one) for one in environment),
            removed=(*REMOVED, *removed),
            directory=_raw(self.directory or image.directory or "/"),
        )
        try:
            found.encode()
        except ValueError as error:
            raise Refused(f"{error}; set executable and arguments in the submit file") from error
        return found


def specification(body: Mapping[str, Any], execute: str) -> Specification:
    """Understand the body of a `docker create`. `execute` is the folder that the payload container shares.

    Raises:
        Refused: it asks for what a pod cannot do.
    """
    host = body.get("HostConfig") or {}
    if not body.get("Image"):
        raise Refused("no image is named; set container_image or docker_image in the submit file")
    for key, (fine, reason) in _LIMITS.items():
        for place in (body, host):
            if place.get(key) and not fine(place[key]):
                raise Refused(f"{reason} (docker option {key}: {_short(place[key])})")
    for key, value in (*body.items(), *host.items()):
        if key not in _TAKEN | IGNORED.keys() | _LIMITS.keys() and value and value != _DEFAULTS.get(key):
            raise Refused(f"k8spilot does not serve the docker option {key} ({_short(value)})")
    for bind in host.get("Binds") or ():
        _check_bind(bind, execute)
    return Specification(
        image=str(body["Image"]),
        entrypoint=_strings(body.get("Entrypoint")),
        command=_strings(body.get("Cmd")) or (),
        environment=_strings(body.get("Env")) or (),
        directory=str(body.get("WorkingDir") or ""),
        labels=dict(body.get("Labels") or {}),
        asked=body,
    )


def check_name(name: str) -> None:
    """Raise Refused unless `name` is one that Docker takes (daemon/names in moby)."""
    if not _NAME.fullmatch(name):
        raise Refused(f"'{_short(name)}' is not a container name; use letters, digits, _, . and -")


def _check_bind(bind: str, execute: str) -> None:
    source, _, rest = bind.partition(":")
    target, _, options = rest.partition(":")
    shared = PurePosixPath(source).is_relative_to(execute) and ".." not in PurePosixPath(source).parts
    if source == target and shared and options in ("", "rw", "z", "Z"):
        return
    raise Refused(
        f"{source} cannot be mounted at {target}: a pod's volumes are fixed when it starts, and the job "
        "shares only its scratch folder with HTCondor; transfer the files instead, or ask the site for the volume "
        f"(docker option --volume {bind})"
    )


def _nothing(_value: object) -> bool:
    return False


def _one_of(*allowed: object) -> Callable[[Any], bool]:
    return lambda value: all(one in allowed for one in (value if isinstance(value, list) else [value]))


_LIMITS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "Tty": (_nothing, "a terminal is not served yet"),
    "OpenStdin": (_nothing, "standard input from the docker client is not served yet"),
    "Volumes": (_nothing, "anonymous volumes are not to be had: a pod's volumes are fixed when it starts"),
    "Mounts": (_nothing, "mounts are not to be had: a pod's volumes are fixed when it starts"),
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
    "PortBindings": (_nothing, "container services (published ports) are not served yet"),
    "PublishAllPorts": (_nothing, "container services (published ports) are not served yet"),
    "Devices": (_nothing, "devices are the pod's and cannot be added by a job"),
    "DeviceRequests": (_nothing, "devices are the pod's and cannot be added by a job"),
    "ShmSize": (_nothing, "the size of /dev/shm is the pod's and cannot be changed by a job"),
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
        lambda value: value.get("Name") in ("", "no"),
        "HTCondor restarts jobs; docker's restart policy is not served",
    ),
}
"""Option (of the request or of its HostConfig) -> what of it is fine, and the sentence for everything else."""


def _strings(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(str(one) for one in value)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
