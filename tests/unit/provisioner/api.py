"""A Kubernetes API server for tests of the provisioner's requests: it answers what a test tells it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.config import kube_config

from k8spilot.provisioner.cluster import NamespaceClient, connect

Json = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status(code: int, reason: str = "", message: str = "no") -> web.Response:
    """A refusal, in the API server's form."""
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code)


def pod(name: str, version: int, template: str = "cpu") -> Json:
    """A pod of a pilot."""
    metadata = {"name": name, "uid": name, "resourceVersion": str(version), "labels": {"k8spilot/template": template}}
    return {"metadata": {**metadata, "creationTimestamp": "2026-11-26T10:00:00Z"}, "status": {"phase": "Pending"}}


def pods(version: int, *items: Json) -> web.Response:
    """A list of pods."""
    return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": items})


@asynccontextmanager
async def serving(answer: Answer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NamespaceClient]:
    """Yield a connection to a server that answers each request as `answer` does."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    server = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": server}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [context],
                "current-context": "c",
            }
        )
    )
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    try:
        async with connect("pilots") as cluster:
            yield cluster
    finally:
        await runner.cleanup()
