"""`k8spilot provision`: the provisioner, its plan, and its status."""

import asyncio
import json
import os
import time
from typing import Any

import typer

from k8spilot.common.errors import PilotError, SettingsError


def start() -> None:
    """Run the provisioner."""
    app, settings = _loaded()
    asyncio.run(app.provision(settings))


def show_plan() -> None:
    """Print what a provisioner would do now."""
    app, settings = _loaded()
    for line in asyncio.run(app.dry_run(settings)):
        typer.echo(line)


def show_status(namespace: str | None, *, as_json: bool) -> int:
    """Print the status that the provisioner of a namespace has written; return the exit status."""
    _loaded_packages()
    from k8spilot.provisioner import report  # noqa: PLC0415

    namespace = namespace or os.environ.get("POD_NAMESPACE")
    if not namespace:
        raise SettingsError("name the namespace of the pod templates with --namespace")
    found, now = asyncio.run(_status(namespace)), time.time()
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(report.lines(found, now)))
    is_fine = now - found.get("time", 0) < report.STALE_SECONDS and not found.get("faults") and not found.get("invalid")
    return 0 if is_fine else 1


async def _status(namespace: str) -> dict[str, Any]:
    from k8spilot.kube.client import ApiRefusal  # noqa: PLC0415
    from k8spilot.provisioner import report  # noqa: PLC0415
    from k8spilot.provisioner.cluster import connect  # noqa: PLC0415

    async with connect(namespace) as cluster:
        try:
            found = await cluster.request("GET", cluster.path("configmaps", report.CONFIG_MAP))
        except ApiRefusal as error:
            raise PilotError(
                f"no provisioner has written its status in the namespace {namespace} ({error}); look at its pod's log"
            ) from None
    status: dict[str, Any] = json.loads(found["data"][report.KEY])
    return status


def _loaded() -> tuple[Any, Any]:
    _loaded_packages()
    from k8spilot.provisioner import app  # noqa: PLC0415
    from k8spilot.provisioner.settings import ProvisionerSettings  # noqa: PLC0415

    return app, ProvisionerSettings.of(os.environ)


def _loaded_packages() -> None:
    try:
        import kubernetes.aio.client  # noqa: F401, PLC0415
    except ImportError:
        raise SettingsError(
            "the package kubernetes is not installed; use the provisioner's image, or install k8spilot[provisioner]"
        ) from None
