"""Docker's options, as a pod can have them: which are taken, which change nothing, and which are refused, and why.

What is not listed here is refused by its name. Nothing is dropped in silence.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from k8spilot.common.errors import Refused

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


def check_options(body: Mapping[str, Any]) -> None:
    """See whether a pod can have all that the body of a `docker create` asks for, by its options alone.

    Raises:
        Refused: it cannot, an option is not of its kind, or no image is named.
    """
    check_shapes(body)
    host = body.get("HostConfig") or {}
    for part in (body, host):  # "" and 0 are nothing here, whatever it is
        _check({key: value for key, value in part.items() if value}, _HOST_SHAPES)
    if not body.get("Image"):
        raise Refused("no image is named; set container_image or docker_image in the submit file")
    for key, (fine, reason) in _LIMITS.items():
        for part in (body, host):
            if part.get(key) and not fine(part[key]):
                raise Refused(f"{reason} (docker option {key}: {short(part[key])})")
    for key, value in (*body.items(), *host.items()):
        if key not in _TAKEN | IGNORED.keys() | _LIMITS.keys() and value and value != _DEFAULTS.get(key):
            raise Refused(f"k8spilot does not serve the docker option {key} ({short(value)})")


def check_shapes(body: Mapping[str, Any]) -> None:
    """See whether what requests to create and to execute have in common is of its kind; raises Refused."""
    _check(body, _SHAPES)


def short(value: object) -> str:
    """A value of a request, as long as it may be in a sentence."""
    text = str(value)[:81]
    return text if len(text) <= 80 else text[:77] + "..."


def _nothing(_value: object) -> bool:
    return False


def _are_binds(mounts: Any) -> bool:
    """Whether all are as HTCondor asks for DOCKER_MOUNT_VOLUMES: `--mount type=bind,source=...,target=...`."""
    known = {"Type", "Source", "Target", "ReadOnly"}
    return all(isinstance(one, dict) and one.keys() <= known and one.get("Type") == "bind" for one in mounts)


def _one_of(*allowed: object) -> Callable[[Any], bool]:
    return lambda value: all(one in allowed for one in (value if isinstance(value, list) else [value]))


_LIMITS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "Volumes": (_nothing, "anonymous volumes are not available: a pod's volumes are fixed when it starts"),
    "Mounts": (
        _are_binds,
        "mounts of anything but folders are not available: a pod's volumes are fixed when it starts",
    ),
    "Tmpfs": (_nothing, "a tmpfs cannot be added: a pod's volumes are fixed when it starts; use /tmp"),
    "VolumesFrom": (_nothing, "volumes of another container are not available in a pod"),
    "Privileged": (_nothing, "privileged containers are not available: the pod has no privileges to give"),
    "CapAdd": (
        _one_of("SYS_PTRACE", "CAP_SYS_PTRACE"),
        "capabilities are not available: the pod has none to give",
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
    "Links": (_nothing, "links to other containers are not available in a pod"),
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


def _check(part: Mapping[str, Any], shapes: _Shapes) -> None:
    for key, (fits, words) in shapes.items():
        if part.get(key) is not None and not fits(part[key]):
            raise Refused(f"the docker option {key} is to be {words} and is none ({short(part[key])})")
