"""Ping, version and info: the first requests of the docker CLI and HTCondor's probe."""

import os
import platform
from typing import Final

from aiohttp import web

import k8spilot
from k8spilot.docker.json_http import json_answer
from k8spilot.docker.store import JSON, ContainerStore, store_of
from k8spilot.registry.image_index import architecture

API_VERSION: Final = "1.45"
_OLDEST: Final = "1.24"


async def ping(_request: web.Request) -> web.Response:
    """Serve GET and HEAD /_ping."""
    return web.Response(
        text="OK",
        headers={
            "Api-Version": API_VERSION,
            "Ostype": "linux",
            "Docker-Experimental": "false",
            "Cache-Control": "no-cache",
        },
    )


async def version(_request: web.Request) -> web.Response:
    """Serve GET /version."""
    return json_answer(
        {
            "Version": k8spilot.__version__,
            "ApiVersion": API_VERSION,
            "MinAPIVersion": _OLDEST,
            "Os": "linux",
            "Arch": architecture(),
            "KernelVersion": platform.release(),
            "Platform": {"Name": "k8spilot"},
            "Components": [{"Name": "Engine", "Version": k8spilot.__version__}],
        }
    )


async def info(request: web.Request) -> web.Response:
    """Serve GET /info."""
    return json_answer(description(store_of(request)))


def description(store: ContainerStore) -> JSON:
    """Return the answer to GET /info."""
    running = sum(container.running for container in store.containers.values())
    return {
        "ID": store.payload.name,
        "Name": platform.node(),
        "ServerVersion": k8spilot.__version__,
        "Containers": len(store.containers),
        "ContainersRunning": running,
        "ContainersPaused": 0,
        "ContainersStopped": len(store.containers) - running,
        "Images": 0,
        "Driver": "kubernetes",
        "OSType": "linux",
        "OperatingSystem": "Kubernetes pod",
        "Architecture": platform.machine(),
        "KernelVersion": platform.release(),
        "NCPU": os.cpu_count(),
        "MemTotal": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "Labels": [],
        "Plugins": {"Volume": [], "Network": [], "Authorization": None, "Log": ["none"]},
        "SecurityOptions": [],
        "Warnings": None,
    }


ROUTES: Final = [
    web.get("/_ping", ping),
    web.head("/_ping", ping),
    web.get("/version", version),
    web.get("/info", info),
]
