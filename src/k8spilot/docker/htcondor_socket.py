"""Requests through HTCondor's own socket: the containers of its jobs, each with the starter that created it.

HTCondor's docker client sends its command lines. command_lines/ checks the line, and this module checks the request
that results from it, as well as every other request: neither check relies on the other.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from k8spilot.common.aio import first_of, readable, side_by_side
from k8spilot.common.errors import PilotError, Refused
from k8spilot.docker.container import Container
from k8spilot.docker.create_request.options import LABEL, short
from k8spilot.docker.removal import remove
from k8spilot.docker.store import JOB_NAME, ContainerStore

logger = logging.getLogger(__name__)

COMMAND: Final = "/htcondor/command"
"""Path of HTCondor's command lines, which this socket alone serves (command_lines/handler.py)."""
SERVED: Final[Mapping[str, frozenset[str]]] = {
    "HEAD": frozenset({"/_ping"}),
    "GET": frozenset(
        {"/_ping", "/info", "/exec/{id}/json", "/images/{name}/json", "/plugins/{name}/json"}
        | {f"/containers/{{id}}/{view}" for view in ("json", "stats")}
        | {f"/{kind}/{{name}}" for kind in ("networks", "volumes", "services", "tasks", "nodes", "secrets", "configs")}
    ),
    "POST": frozenset(
        {COMMAND, "/images/create", "/containers/create", "/containers/prune", "/exec/{id}/start", "/exec/{id}/resize"}
        | {f"/containers/{{id}}/{action}" for action in ("attach", "start", "wait", "resize", "kill")}
        | {f"/containers/{{id}}/{action}" for action in ("pause", "unpause", "exec")}
    ),
    "DELETE": frozenset({"/containers/{id}"}),
}
"""Method -> paths of HTCondor's requests (docker-api.cpp), and of docker's client's requests for an inspection."""
REQUEST_LABELS: Final = frozenset({"k8spilot.gpus", "k8spilot.disk"})
"""Labels that HTCondor's docker client adds (condor/sandbox.c)."""
_STARTD_SECONDS: Final = 10.0
"""Seconds for HTCondor to remove the container of an ended starter. The starter does so before its end. After a killed
one, the startd does so at once (util.cpp, cleanup_execute_dir), but only with one slot: it knows no other slot's
socket."""


def check_request(name: str, body: Mapping[str, Any]) -> None:
    """Check whether a create request has the form of HTCondor's for a job (docker-api.cpp, createContainer).

    Args:
        name: name of the container.
        body: the request, a ContainerConfig of the Engine API.

    Raises:
        Refused: it has another form.
    """
    labels = body.get("Labels")
    host = body.get("HostConfig")
    entrypoint = body.get("Entrypoint") or ()
    odd = {
        f"the name {short(name)}": not JOB_NAME.fullmatch(name),
        f"the labels {short(labels)}": not isinstance(labels, dict)
        or labels.get(LABEL) != "True"
        or not labels.keys() <= {LABEL, *REQUEST_LABELS},
        "the option --tty": bool(body.get("Tty")),
        "the option --rm": isinstance(host, dict) and bool(host.get("AutoRemove")),
        f"the entrypoint {short(entrypoint)}": isinstance(entrypoint, list) and len(entrypoint) > 1,
    }
    for feature, is_present in odd.items():
        if is_present:
            raise Refused(
                f"HTCondor creates no container with {feature}; set image and executable as HTCondor's manual says"
            )


async def follow_starter(store: ContainerStore, container: Container) -> None:
    """Remove a container that outlives its starter.

    A starter removes its own container. The startd removes that of a killed starter, but tries once. If the job has
    taken all processes of the pod, that fails, and the job would run on without a client until the next job.
    """
    pid = int(container.name.rpartition("PID")[2])
    async with side_by_side(container.removed.wait(), _ended(pid)) as (removed, ended):
        await first_of(removed, ended)
        if not removed.done():
            await first_of(removed, seconds=_STARTD_SECONDS)
        if removed.done():
            return
        logger.warning("%s has outlived its starter, process %d; removing it.", container.name, pid)
        try:
            await remove(store, container)
        except PilotError as error:
            logger.warning("%s cannot be removed: %s.", container.name, error)


async def _ended(pid: int) -> None:
    """Wait until a process of the pod has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError as error:  # no descriptor is left: the next job's starter requests the removal
        logger.warning("Process %d cannot be followed: %s.", pid, error.strerror)
        await asyncio.Event().wait()  # until the container is removed
    await readable(process)
