"""Answers to HTCondor's commands in the words of docker's client, as far as HTCondor reads them; no I/O."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from k8spilot.docker import serializers
from k8spilot.docker.container import Container

_IN_INFO: Final = {
    "ServerVersion": "Server Version",
    "Driver": "Storage Driver",
    "OperatingSystem": "Operating System",
    "Architecture": "Architecture",
    "NCPU": "CPUs",
    "Name": "Name",
}
"""Facts of `docker info`. HTCondor reads only that there are some."""


def inspection(container: Container) -> str:
    """Return the answer to HTCondor's inspection (grammar.INSPECTION).

    Raises:
        PayloadLost: the container is lost.
    """
    state = serializers.state(container)
    error = json.dumps(state["Error"], ensure_ascii=False)
    return (
        f'ContainerId="{container.identifier}"\n'
        f"Pid={state['Pid']}\n"
        f'Name="/{container.name}"\n'
        f"Running={_boolean(state['Running'])}\n"
        f"ExitCode={state['ExitCode']}\n"
        f'StartedAt="{state["StartedAt"]}"\n'
        f'FinishedAt="{state["FinishedAt"]}"\n'
        f"DockerError={error}\n"
        f'OOMKilled="{_boolean(state["OOMKilled"])}"\n'
    )


def was_never_started(container: Container) -> bool:
    """Return whether the container looks like one that has ended well, and was not started.

    Raises:
        PayloadLost: the container is lost.
    """
    state = serializers.state(container)
    return state["StartedAt"] == serializers.NEVER and state["ExitCode"] == 0 and not state["Error"]


def info(facts: Mapping[str, Any]) -> str:
    """Return the answer to `docker info`."""
    return "".join(f"{title}: {facts[key]}\n" for key, title in _IN_INFO.items())


def pruned(removed: Sequence[str]) -> str:
    """Return the answer to `docker container prune`."""
    listed = "Deleted Containers:\n" + "".join(f"{one}\n" for one in removed) + "\n" if removed else ""
    return f"{listed}Total reclaimed space: 0B\n"


def _boolean(value: object) -> str:
    return "true" if value else "false"
