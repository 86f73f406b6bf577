"""Options of `docker create` as keys of the Engine API; no I/O.

Each function does what docker's client does with one option (cli/command/container/opts.go in docker/cli), as far as
HTCondor or an operator's DOCKER_EXTRA_ARGUMENTS use it.
"""

import csv
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from k8spilot.docker.command_lines.grammar import is_number, is_variable

Body = dict[str, Any]
"""A ContainerConfig of the Engine API, while it is being written."""
Setter = Callable[[Body, str], None]
"""Writes the value of an option; raises ValueError for an invalid one."""

_CDI: Final = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_-]+=[A-Za-z0-9_.:-]+")
"""Name of a device by the Container Device Interface; a path begins with a slash."""
_MEBIBYTES: Final = re.compile(r"([0-9]{1,9})m")
_MOUNT: Final = re.compile(r"type=bind,source=(/[^,\"\n]*),target=(/[^,\"\n]*)(,readonly)?")
_ALL: Final = -1


def _as_text(key: str) -> Setter:
    """Return a setter of one text."""

    def set_text(body: Body, value: str) -> None:
        body[key] = value

    return set_text


def _host_text(key: str) -> Setter:
    def set_text(body: Body, value: str) -> None:
        body["HostConfig"][key] = value

    return set_text


def _host_texts(key: str) -> Setter:
    """Return a setter that adds to a list."""

    def add(body: Body, value: str) -> None:
        body["HostConfig"].setdefault(key, []).append(value)

    return add


def _capability(key: str) -> Setter:
    """Return a setter of a capability by its kernel's name, which users may shorten."""

    def add(body: Body, value: str) -> None:
        name = value.upper()
        _host_texts(key)(body, name if name == "ALL" or name.startswith("CAP_") else f"CAP_{name}")

    return add


def _host_number(key: str) -> Setter:
    def set_number(body: Body, value: str) -> None:
        body["HostConfig"][key] = _number(value)

    return set_number


def _number(value: str) -> int:
    if not is_number(value):
        raise ValueError
    return int(value)


def _memory(body: Body, value: str) -> None:
    match = _MEBIBYTES.fullmatch(value)
    if match is None:
        raise ValueError
    body["HostConfig"]["Memory"] = int(match[1]) * 1024 * 1024


def _variable(body: Body, value: str) -> None:
    if not is_variable(value):
        raise ValueError
    body.setdefault("Env", []).append(value)


def _volume(body: Body, value: str) -> None:
    if ":" in value:
        body["HostConfig"].setdefault("Binds", []).append(value)
    else:
        body.setdefault("Volumes", {})[value] = {}


def _mount(body: Body, value: str) -> None:
    match = _MOUNT.fullmatch(value)
    if match is None:
        raise ValueError
    mount: Body = {"Type": "bind", "Source": match[1], "Target": match[2]}
    if match[3]:
        mount["ReadOnly"] = True
    body["HostConfig"].setdefault("Mounts", []).append(mount)


def _device(body: Body, value: str) -> None:
    host = body["HostConfig"]
    if _CDI.fullmatch(value):
        requests = host.setdefault("DeviceRequests", [])
        named = next((one for one in requests if one["Driver"] == "cdi"), None)
        if named is None:
            requests.append(named := {"Driver": "cdi", "DeviceIDs": []})
        named["DeviceIDs"].append(value)
        return
    source, target, mode, *_ = [*value.split(":"), "", ""]
    device = {"PathOnHost": source, "PathInContainer": target or source, "CgroupPermissions": mode or "rwm"}
    host.setdefault("Devices", []).append(device)


def _gpus(body: Body, value: str) -> None:
    """Write --gpus: `all`, a number, or fields as `device=0` (opts/gpus.go in docker/cli)."""
    request: Body = {"Driver": "", "Count": 0, "Capabilities": [["gpu"]]}
    counted = False
    for field in _fields(value):
        key, equals, text = field.partition("=")
        if not equals or key == "count":
            request["Count"], counted = _count(text if equals else key), True
        elif key == "driver":
            request["Driver"] = text
        elif key == "device":
            request["DeviceIDs"] = text.split(",")
        elif key == "capabilities":
            request["Capabilities"] = [[*text.split(","), "gpu"]]
        else:
            raise ValueError
    if not counted and "DeviceIDs" not in request:
        request["Count"] = 1
    body["HostConfig"].setdefault("DeviceRequests", []).append(request)


def _fields(value: str) -> list[str]:
    try:
        fields = next(csv.reader([value], strict=True), [])
    except csv.Error as error:
        raise ValueError from error
    if not fields:
        raise ValueError
    return fields


def _count(text: str) -> int:
    return _ALL if text == "all" else _number(text)


def _port(body: Body, value: str) -> None:
    port = f"{_number(value)}/tcp"
    body.setdefault("ExposedPorts", {})[port] = {}
    bindings = body["HostConfig"].setdefault("PortBindings", {})
    bindings.setdefault(port, []).append({"HostIp": "", "HostPort": ""})


def _group(body: Body, value: str) -> None:
    _number(value)
    _host_texts("GroupAdd")(body, value)


def _flag(key: str) -> Setter:
    def set_flag(body: Body, value: str) -> None:
        if value:
            raise ValueError
        body["HostConfig"][key] = True

    return set_flag


def _log_driver(body: Body, value: str) -> None:
    body["HostConfig"]["LogConfig"] = {"Type": value, "Config": {}}


def _entrypoint(body: Body, value: str) -> None:
    body["Entrypoint"] = [value]


def _ignore(_body: Body, _value: str) -> None:
    """Write nothing: the option concerns the client, or the caller reads it."""


SETTERS: Final[Mapping[str, Setter]] = {
    "--cap-add": _capability("CapAdd"),
    "--cap-drop": _capability("CapDrop"),
    "--cpu-shares": _host_number("CpuShares"),
    "--cpuset-cpus": _host_text("CpusetCpus"),
    "--device": _device,
    "--entrypoint": _entrypoint,
    "--env": _variable,
    "--gpus": _gpus,
    "--group-add": _group,
    "--hostname": _as_text("Hostname"),
    "--init": _flag("Init"),
    "--log-driver": _log_driver,
    "--memory": _memory,
    "--mount": _mount,
    "--name": _ignore,
    "--network": _host_text("NetworkMode"),
    "--publish": _port,
    "--pull": _ignore,
    "--security-opt": _host_texts("SecurityOpt"),
    "--shm-size": _host_number("ShmSize"),
    "--user": _as_text("User"),
    "--volume": _volume,
    "--workdir": _as_text("WorkingDir"),
}
"""Option -> what it becomes. An option that is not listed cannot be used."""
SHORT: Final[Mapping[str, str]] = {"-e": "--env", "-p": "--publish", "-v": "--volume"}
