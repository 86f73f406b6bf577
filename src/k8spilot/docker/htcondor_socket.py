"""What comes by HTCondor's own socket: the containers of its jobs, each with the starter that made it.

The lines of docker's client are checked before it reads them (condor/scripts/docker-client.sh). What is checked here is
the request that came of such a line: whoever finds a way around the one meets the other.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from k8spilot.common.aio import first_of
from k8spilot.common.errors import PilotError, Refused
from k8spilot.docker.container import Container
from k8spilot.docker.create.options import short
from k8spilot.docker.removal import remove
from k8spilot.docker.store import JOB_NAME, ContainerStore

logger = logging.getLogger(__name__)

LABEL: Final = "org.htcondorproject"
"""HTCondor's label of its containers, with the value True (docker-api.cpp, HTCondorLabel)."""
SERVED: Final[Mapping[str, frozenset[str]]] = {
    "HEAD": frozenset({"/_ping"}),
    "GET": frozenset(
        {"/_ping", "/info", "/exec/{id}/json", "/images/{name}/json", "/plugins/{name}/json"}
        | {f"/containers/{{id}}/{what}" for what in ("json", "stats")}
        | {f"/{kind}/{{name}}" for kind in ("networks", "volumes", "services", "tasks", "nodes", "secrets", "configs")}
    ),
    "POST": frozenset(
        {"/images/create", "/containers/create", "/containers/prune", "/exec/{id}/start", "/exec/{id}/resize"}
        | {f"/containers/{{id}}/{what}" for what in ("attach", "start", "wait", "resize", "kill")}
        | {f"/containers/{{id}}/{what}" for what in ("pause", "unpause", "exec")}
    ),
    "DELETE": frozenset({"/containers/{id}"}),
}
"""Method -> paths of HTCondor's requests (docker-api.cpp), and of those that docker's client makes to inspect."""
GPUS_LABEL: Final = "k8spilot.gpus"
"""What our own program between HTCondor and docker's client adds (condor/scripts/docker-client.sh)."""
_STARTD_SECONDS: Final = 10.0
"""How long the startd has to remove the container of a starter that has ended: it does so at once (util.cpp,
cleanup_execute_dir), and so did the starter before."""


def check_request(name: str, body: Mapping[str, Any]) -> None:
    """See whether a request to create is one that HTCondor makes for a job (docker-api.cpp, createContainer).

    Args:
        name: of the container.
        body: the request, a ContainerConfig of the Engine API.

    Raises:
        Refused: it is another one.
    """
    labels = body.get("Labels")
    host = body.get("HostConfig")
    entrypoint = body.get("Entrypoint") or ()
    odd = {
        f"the name {short(name)}": not JOB_NAME.fullmatch(name),
        f"the labels {short(labels)}": not isinstance(labels, dict)
        or labels.get(LABEL) != "True"
        or not labels.keys() <= {LABEL, GPUS_LABEL},
        "the option --tty": bool(body.get("Tty")),
        "the option --rm": isinstance(host, dict) and bool(host.get("AutoRemove")),
        f"the entrypoint {short(entrypoint)}": isinstance(entrypoint, list) and len(entrypoint) > 1,
    }
    for what, is_so in odd.items():
        if is_so:
            raise Refused(f"HTCondor gives no container {what}; name image and executable as its manual does")


async def follow_starter(engine: ContainerStore, container: Container) -> None:
    """Remove a container that outlives its starter.

    A starter removes its own; what one leaves that was killed, the startd removes. It tries once. Where the job has
    taken all processes that the pod may have, that fails, and the job would go on for nobody until the next one comes.
    """
    pid = int(container.name.rpartition("PID")[2])
    removed = asyncio.ensure_future(container.removed.wait())
    ended = asyncio.ensure_future(_ended(pid))
    try:
        await first_of(removed, ended)
        if not removed.done():
            await first_of(removed, seconds=_STARTD_SECONDS)
        if not removed.done():
            logger.warning("%s has outlived its starter, process %d; it is removed.", container.name, pid)
            await remove(engine, container)
    except PilotError as error:
        logger.warning("%s cannot be removed: %s.", container.name, error)
    finally:
        for work in (removed, ended):
            work.cancel()
        await asyncio.wait([removed, ended])


async def _ended(pid: int) -> None:
    """Wait until a process of the pod has ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError as error:  # no descriptor is left: the next job's starter has the container removed
        logger.warning("Process %d cannot be followed: %s.", pid, error.strerror)
        await asyncio.Event().wait()  # until the container is removed
    loop.add_reader(process, ended.set)  # a pidfd can be read when its process has ended (pidfd_open(2))
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process)
        os.close(process)
