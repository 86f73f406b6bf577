"""Docker's options in a pod: supported ones, ignored ones, and refused ones with their reasons.

An option that is not listed is refused by name. No option is dropped silently.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from k8spilot.common.errors import Refused

LABEL: Final = "org.htcondorproject"
"""HTCondor's label of its containers, with the value True (docker-api.cpp, HTCondorLabel)."""
IGNORED: Final = {
    "User": "jobs run under the payload container's uid, which the pod fixes",
    "GroupAdd": "as User",
    "Hostname": "a pod's containers share the pod's host name",
    "CpuShares": "the payload container has the CPUs of its slot",
    "CpusetCpus": "as CpuShares",
    "Memory": "as CpuShares",
    "CapDrop": "the payload container has no capabilities",
    "SecurityOpt": "the payload container cannot gain privileges; other options are refused",
    "Init": "payload-init does the work of --init",
    "LogConfig": "output goes to the attached clients, as with the log driver none",
}
"""Options that HTCondor always sends, and that the pod has fixed already."""

_SUPPORTED: Final = frozenset(
    {"Image", "Entrypoint", "Cmd", "Env", "WorkingDir", "Labels", "HostConfig", "Binds", "Tty", "OpenStdin"}
    | {"ExposedPorts", "PortBindings", "AutoRemove", "ShmSize", "Devices", "DeviceRequests"}
    # Options that concern the client only, or that repeat others: NetworkingConfig repeats HostConfig's NetworkMode.
    | {"AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce", "ConsoleSize", "ContainerIDFile", "NetworkingConfig"}
)

_DEFAULTS: Final = {"MemorySwappiness": -1, "CgroupnsMode": "private", "StopSignal": "SIGTERM"}
"""Values that clients send by default."""


def check_options(body: Mapping[str, Any]) -> None:
    """Check the options in the body of a `docker create`.

    Raises:
        Refused: a pod does not support an option, an option has the wrong type, or there is no image.
    """
    check_shapes(body)
    host = body.get("HostConfig") or {}
    for part in (body, host):  # "" and 0 count as unset
        _check({key: value for key, value in part.items() if value}, _HOST_SHAPES)
    if not body.get("Image"):
        raise Refused("the job names no image; set container_image or docker_image in the submit file")
    for key, (is_allowed, reason) in _LIMITS.items():
        for part in (body, host):
            if part.get(key) and not is_allowed(part[key]):
                raise Refused(f"{reason} (docker option {key}: {short(part[key])})")
    for key, value in (*body.items(), *host.items()):
        if key not in _SUPPORTED | IGNORED.keys() | _LIMITS.keys() and value and value != _DEFAULTS.get(key):
            raise Refused(f"k8spilot does not serve the docker option {key} ({short(value)})")


def check_shapes(body: Mapping[str, Any]) -> None:
    """Check the types of the options that requests to create and to execute have in common.

    Raises:
        Refused: an option has the wrong type.
    """
    _check(body, _SHAPES)


def short(value: object) -> str:
    """Return a value of a request, shortened to 80 characters for an error message."""
    text = str(value)[:81]
    return text if len(text) <= 80 else text[:77] + "..."


def _never(_value: object) -> bool:
    return False


def _are_binds(mounts: Any) -> bool:
    """Return whether all mounts have the form of DOCKER_MOUNT_VOLUMES: `--mount type=bind,source=...,target=...`."""
    known = {"Type", "Source", "Target", "ReadOnly"}
    return all(isinstance(item, dict) and item.keys() <= known and item.get("Type") == "bind" for item in mounts)


def _one_of(*allowed: object) -> Callable[[Any], bool]:
    return lambda value: all(item in allowed for item in (value if isinstance(value, list) else [value]))


_LIMITS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "Volumes": (_never, "anonymous volumes are not available: a pod's volumes are fixed when it starts"),
    "Mounts": (
        _are_binds,
        "only bind mounts are available: a pod's volumes are fixed when it starts",
    ),
    "Tmpfs": (_never, "a tmpfs cannot be added: a pod's volumes are fixed when it starts; use /tmp"),
    "VolumesFrom": (_never, "volumes of another container are not available in a pod"),
    "Privileged": (_never, "a privileged container is not available: the pod has no privileges"),
    "CapAdd": (
        _one_of("SYS_PTRACE", "CAP_SYS_PTRACE"),
        "capabilities are not available: the pod has none",
    ),
    "SecurityOpt": (
        _one_of("no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"),
        "the pod fixes the security options, and a job cannot change them",
    ),
    "NetworkMode": (
        _one_of("default", "bridge", "nat"),
        "the job has only the pod's network; leave docker_network_type unset in the submit file",
    ),
    "PublishAllPorts": (
        _never,
        "publish ports one by one: the ports that an image exposes need not be the ones that it serves",
    ),
    "ReadonlyRootfs": (_never, "the pod fixes whether the root file system is read-only"),
    "PidMode": (_one_of("private"), "the pod fixes the process namespace, and a job cannot change it"),
    "IpcMode": (
        _one_of("private", "shareable"),
        "the pod fixes the IPC namespace, and a job cannot change it",
    ),
    "UTSMode": (_never, "the pod fixes the host name, and a job cannot change it"),
    "UsernsMode": (_never, "the pod fixes the user namespace, and a job cannot change it"),
    "Runtime": (_never, "the node fixes the container runtime, and a job cannot choose it"),
    "Ulimits": (_never, "the pod fixes the limits of processes, and a job cannot change them"),
    "Sysctls": (_never, "the pod fixes kernel settings, and a job cannot change them"),
    "Dns": (_never, "the pod fixes name resolution, and a job cannot change it"),
    "ExtraHosts": (_never, "the pod fixes name resolution, and a job cannot change it"),
    "Links": (_never, "links to other containers are not available in a pod"),
    "StorageOpt": (_never, "the node fixes storage options, and a job cannot change them"),
    "CgroupParent": (_never, "the pod fixes the control group, and a job cannot change it"),
    "RestartPolicy": (
        lambda value: value.get("Name", "") in ("", "no"),
        "HTCondor restarts jobs; k8spilot does not support docker's restart policy",
    ),
}
"""Option (of the request or of its HostConfig) -> test of the allowed values, and the sentence for all others."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in value)


def _is_text_or_texts(value: object) -> bool:
    return _is_text(value) or _are_texts(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_object_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(item) for pair in value.items() for item in pair)


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


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
"""Options that are read, with the test of their type and its name."""


def _check(part: Mapping[str, Any], shapes: _Shapes) -> None:
    for key, (fits, type_name) in shapes.items():
        if part.get(key) is not None and not fits(part[key]):
            raise Refused(f"the docker option {key} must be {type_name}, but is {short(part[key])}")
