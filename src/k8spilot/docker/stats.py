"""Resource usage of containers: GET /containers/ID/stats."""

import asyncio
import json
import os
import time
from datetime import UTC, datetime
from typing import Any, Final

import psutil
from aiohttp import web

from k8spilot.common.errors import Refused
from k8spilot.docker.container import Container
from k8spilot.docker.containers import find
from k8spilot.docker.json_http import flag, json_answer
from k8spilot.docker.serializers import stamp
from k8spilot.payload.usage import Traffic, Usage

_INTERVAL_SECONDS: Final = 1.0
"""Seconds between two lines of a stream, as in Docker."""


async def stats(request: web.Request) -> web.StreamResponse:
    """Serve GET /containers/ID/stats: each second, or once.

    A single answer closes the connection, which HTCondor awaits.
    """
    container = find(request)
    run = container.run
    if run is None:
        raise Refused(f"container {container.name} has not been started")
    if not flag(request, "stream", unset=True):
        answer = json_answer(figures(container, run.usage, run.traffic))
        answer.force_close()
        return answer
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    before: dict[str, Any] | None = None
    while container.running and not run.ended.done():  # a container that returns to the queue runs on for its client
        now = figures(container, run.usage, run.traffic, before)
        await stream.write(json.dumps(now, separators=(",", ":")).encode() + b"\n")
        before = now["cpu_stats"]
        await asyncio.wait([run.ended], timeout=_INTERVAL_SECONDS)
    await stream.write_eof()
    return stream


def figures(
    container: Container, usage: Usage, traffic: Traffic, before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return one answer; `before` is the cpu_stats of the previous answer.

    HTCondor finds a figure by the first occurrence of its name (docker-api.cpp, `sscanf`). So cpu_stats comes before
    precpu_stats, memory is under `rss`, and no other `rss`, `anon` or `usage` precedes it.
    """
    cpu = {
        "cpu_usage": {
            "total_usage": (usage.user_ns or 0) + (usage.system_ns or 0),
            "usage_in_kernelmode": usage.system_ns or 0,
            "usage_in_usermode": usage.user_ns or 0,
        },
        # The sum of all processors: the docker CLI divides by it (cli/command/container/stats_helpers.go).
        "system_cpu_usage": time.monotonic_ns() * (os.cpu_count() or 1),
        "online_cpus": os.cpu_count(),
    }
    machine = psutil.virtual_memory().total
    return {
        "read": stamp(datetime.now(UTC)),
        "name": f"/{container.name}",
        "id": container.identifier,
        "cpu_stats": cpu,
        "precpu_stats": before or cpu,
        "memory_stats": {
            "stats": {"rss": usage.resident or 0},
            "usage": usage.resident or 0,
            "limit": min(usage.limit or machine, machine),  # cgroup v1 says 2**63 or so where there is none
        },
        "networks": {"eth0": {"rx_bytes": traffic.received, "tx_bytes": traffic.sent}},
    }


ROUTES: Final = [web.get("/containers/{id}/stats", stats)]
