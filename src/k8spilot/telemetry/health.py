"""Liveness of the engine, and readiness of the pilot for jobs.

Alive means that the event loop runs and that the Docker socket answers; the check sends a request, as HTCondor does.
The API server's health is not included: an outage must not end pilots whose jobs continue. Ready means that the next
job could start.
"""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from k8spilot.kube.own_pod import OwnPod
from k8spilot.payload.binding.abandoned_pull import AbandonedPull
from k8spilot.payload_init.server import PayloadInitServer

_PING_SECONDS: Final = 10.0


async def dead(path: Path) -> str:
    """Return the fault of the engine that listens at `path`; empty if it answers."""
    try:
        async with (
            asyncio.timeout(_PING_SECONDS),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
            session.get("http://k8spilot/_ping") as answer,
        ):
            return "" if answer.status == HTTPStatus.OK else f"the engine answers {answer.status} on {path}"
    except TimeoutError:
        return f"the engine does not answer on {path} within {_PING_SECONDS:.0f} s"
    except (aiohttp.ClientError, OSError) as error:
        return f"the engine does not answer on {path} ({error})"


def unready(pod: OwnPod, init_server: PayloadInitServer, abandoned_pull: AbandonedPull | None) -> str:
    """Return the reason why no job can start now; empty if one can."""
    if pod.gone:
        return "the own pod is gone from the Kubernetes API"
    if not pod.has_pod:
        return "the own pod has not been seen yet"
    if abandoned_pull is not None and abandoned_pull.message:
        return abandoned_pull.message
    channel = init_server.current
    if pod.connectivity.since is not None and (channel is None or not channel.still_open()):
        seconds = asyncio.get_running_loop().time() - pod.connectivity.since
        return (
            "payload-init is not connected, and no image can be bound, since the Kubernetes API cannot be reached for "
            f"{seconds:.0f} s"
        )
    return ""
