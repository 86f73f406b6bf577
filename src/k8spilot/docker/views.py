"""Containers as Docker's JSON shows them; no input or output here."""

from datetime import UTC, datetime
from typing import Any, Final

from k8spilot.docker.state import Container
from k8spilot.errors import PayloadLost
from k8spilot.payload.usage import Traffic, Usage

NEVER: Final = "0001-01-01T00:00:00Z"
"""Go's zero time."""


def stamp(time: datetime | None) -> str:
    """RFC 3339 in UTC, as Docker writes it."""
    return NEVER if time is None else time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _told(code: int) -> int:
    """An exit code as HTCondor can carry it: it would make 255 a 0 (user_proc.cpp), a failed job a good one."""
    return 128 if code == 255 else code


def state(container: Container) -> dict[str, Any]:
    """State of GET /containers/ID/json.

    Raises:
        PayloadLost: the container is lost. Docker has no word for that, and any exit code would be taken for the job's.
    """
    outcome, run = container.outcome, container.run
    unfinished = "running" if container.running else "created"
    return {
        "Status": unfinished if outcome is None else "exited",
        "Running": container.running,
        "Paused": False,
        "Restarting": False,
        "OOMKilled": outcome is not None and outcome.out_of_memory,
        "Dead": False,
        "Pid": run.channel.pid if run is not None and container.running else 0,
        "ExitCode": _told(outcome.code) if outcome is not None else (128 if container.error else 0),
        "Error": container.error,
        "StartedAt": stamp(run.began if run is not None else None),
        "FinishedAt": stamp(outcome.finished if outcome is not None else None),
    }


def inspect(container: Container) -> dict[str, Any]:
    """GET /containers/ID/json."""
    asked = container.specification.asked
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
        "HostConfig": asked.get("HostConfig") or {},
        "Mounts": [],
        "Config": {key: value for key, value in asked.items() if key not in ("HostConfig", "NetworkingConfig")},
        # Published ports only, as arrays: HTCondor gives up on an object with anything else in it.
        "NetworkSettings": {"Ports": {}, "Networks": {}},
    }


def summary(container: Container) -> dict[str, Any]:
    """One row of GET /containers/json."""
    try:
        status = str(state(container)["Status"])
    except PayloadLost:
        status = "dead"
    return {
        "Id": container.identifier,
        "Names": [f"/{container.name}"],
        "Image": container.specification.image,
        "ImageID": container.image.identifier,
        "Command": " ".join(container.specification.command),
        "Created": int(container.created.timestamp()),
        "State": status,
        "Status": status.capitalize(),
        "Ports": [],
        "Labels": dict(container.specification.labels),
        "Mounts": [],
    }


def stats(container: Container, usage: Usage, traffic: Traffic) -> dict[str, Any]:
    """GET /containers/ID/stats?stream=0.

    HTCondor finds figures by the first occurrence of their name (docker-api.cpp, `sscanf`): so cpu_stats comes before
    precpu_stats, memory is under `rss`, and no other `rss`, `anon` or `usage` comes before it.
    """
    cpu = {
        "cpu_usage": {
            "total_usage": (usage.user_ns or 0) + (usage.system_ns or 0),
            "usage_in_kernelmode": usage.system_ns or 0,
            "usage_in_usermode": usage.user_ns or 0,
        }
    }
    return {
        "read": stamp(datetime.now(UTC)),
        "name": f"/{container.name}",
        "id": container.identifier,
        "cpu_stats": cpu,
        "precpu_stats": cpu,
        "memory_stats": {"stats": {"rss": usage.resident or 0}, "usage": usage.resident or 0},
        "networks": {"eth0": {"rx_bytes": traffic.received, "tx_bytes": traffic.sent}},
    }
