"""Containers in Docker's JSON; no I/O."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from k8spilot.common.errors import PayloadLost
from k8spilot.docker.container import Container, Execution

NEVER: Final = "0001-01-01T00:00:00Z"
"""Go's zero time."""


def stamp(time: datetime | None) -> str:
    """Return a time in RFC 3339 in UTC, as Docker writes it."""
    return NEVER if time is None else time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _exit_code(code: int) -> int:
    """Return an exit code that HTCondor can carry: it would turn 255 into 0 (user_proc.cpp), a success."""
    return 128 if code == 255 else code


def state(container: Container) -> dict[str, Any]:
    """Return State of GET /containers/ID/json.

    Raises:
        PayloadLost: the container is lost. Docker has no such state, and HTCondor would take any exit code for the
            job's.
    """
    outcome, run = container.outcome, container.run
    unfinished = "paused" if container.paused else "running" if container.running else "created"
    return {
        "Status": "exited" if outcome is not None or (container.error and run is not None) else unfinished,
        "Running": container.running,
        "Paused": container.paused,
        "Restarting": False,
        "OOMKilled": outcome is not None and outcome.out_of_memory,
        "Dead": False,
        "Pid": run.channel.pid if run is not None and container.running else 0,
        "ExitCode": _exit_code(outcome.code) if outcome is not None else (128 if container.error else 0),
        "Error": container.error,
        "StartedAt": stamp(run.began if run is not None else None),
        "FinishedAt": stamp(outcome.finished if outcome is not None else None),
    }


def inspect(container: Container) -> dict[str, Any]:
    """Return GET /containers/ID/json."""
    request = container.specification.body
    command = [
        *(container.specification.entrypoint or container.image.entrypoint),
        *container.specification.command,
    ]
    return {
        "Id": container.identifier,
        "Created": stamp(container.created),
        "Path": command[0] if command else "",
        "Args": command[1:],
        "State": state(container),
        "Image": container.image.identifier,
        "Name": f"/{container.name}",
        "RestartCount": 0,
        "Driver": "kubernetes",
        "Platform": "linux",
        "MountLabel": "",
        "ProcessLabel": "",
        "AppArmorProfile": "",
        "ExecIDs": None,
        "HostConfig": _host(request.get("HostConfig") or {}),
        "Mounts": [],
        "Config": {key: value for key, value in request.items() if key not in ("HostConfig", "NetworkingConfig")},
        # Published ports only, as arrays: HTCondor rejects an object with other values.
        "NetworkSettings": {"Ports": _ports(container), "Networks": {}},
    }


def _status_text(container: Container, shown: str) -> str:
    """Return the status text of `docker ps`."""
    if container.run is None or shown not in ("running", "paused"):
        return shown.capitalize()
    seconds = (datetime.now(UTC) - container.run.began).total_seconds()
    return f"Up {seconds:.0f} seconds{' (Paused)' if shown == 'paused' else ''}"


def status(container: Container) -> str:
    """Return State.Status; `dead` for a lost container."""
    try:
        return str(state(container)["Status"])
    except PayloadLost:
        return "dead"


def summary(container: Container) -> dict[str, Any]:
    """Return one row of GET /containers/json."""
    shown = status(container)
    return {
        "Id": container.identifier,
        "Names": [f"/{container.name}"],
        "Image": container.specification.image,
        "ImageID": container.image.identifier,
        "Command": " ".join(container.specification.command),
        "Created": int(container.created.timestamp()),
        "State": shown,
        "Status": _status_text(container, shown),
        "Ports": [
            {"PrivatePort": int(number), "PublicPort": int(number), "Type": protocol or "tcp"}
            for number, _, protocol in (port.partition("/") for port in container.specification.ports)
        ],
        "Labels": dict(container.specification.labels),
        "Mounts": [],
    }


def _host(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return HostConfig with Docker's default log driver, which shows docker-py that there are logs."""
    log = request.get("LogConfig")
    named = isinstance(log, dict) and log.get("Type")
    return {**request, "LogConfig": log if named else {"Type": "json-file", "Config": {}}}


def _ports(container: Container) -> dict[str, Any]:
    """Return the published ports of a running container; HTCondor reads `<service>_HostPort` here (docker-api.cpp)."""
    shown = container.specification.ports if container.running else ()
    return {port: [{"HostIp": "0.0.0.0", "HostPort": port.partition("/")[0]}] for port in shown}  # noqa: S104


def execution(one: Execution) -> dict[str, Any]:
    """Return GET /exec/ID/json."""
    outcome = one.session.ended.result() if one.session is not None and one.session.ended.done() else None
    program, *arguments = one.body["Cmd"]
    return {
        "ID": one.identifier,
        "ContainerID": one.container.identifier,
        "Running": one.running,
        "ExitCode": None if outcome is None else outcome.code,
        "Pid": 0,
        "OpenStdin": bool(one.body.get("AttachStdin")),
        "OpenStdout": bool(one.body.get("AttachStdout")),
        "OpenStderr": bool(one.body.get("AttachStderr")),
        "CanRemove": False,
        "DetachKeys": "",
        "ProcessConfig": {
            "entrypoint": program,
            "arguments": arguments,
            "tty": one.stdio.terminal,
            "privileged": False,
        },
    }
