"""Templates of the stories, and the pilots that are made from them."""

from collections.abc import Callable
from typing import Any

from k8spilot.condor.configuration.values import UPDATE_SECONDS
from lab.api import Lab
from lab.factory import Factory, TemplateOf
from lab.jobs import Jobs

IDLE_MINUTES = 0.4
"""Of pilots here: they end by themselves soon after the last job."""
IDLE_S = 60 * IDLE_MINUTES + UPDATE_SECONDS
"""Longest time until then: the startd looks whether it is idle when it sends its ad."""
MOST = 3
SMALL = TemplateOf(
    "small", {"max-pilots": str(MOST), "max-new-per-minute": "100"}, {"ACCEPT_IDLE_MINUTES": str(IDLE_MINUTES)}
)

Submit = Callable[..., Jobs]


def commands(lab: Lab, script: str, where: str, **more: str) -> dict[str, str]:
    """Commands of a submit description for jobs that run a shell script, in slots for which `where` is true."""
    return {
        "container_image": f"docker://{lab.registry}/busybox",
        "executable": "/bin/sh",
        "arguments": f"\"-c '{script}'\"",
        "transfer_output_files": '""',
        "request_memory": "64M",
        "request_disk": "20M",
        "requirements": where,
        **more,
    }


def alive(site: Factory) -> list[dict[str, Any]]:
    """The pilots that have not ended."""
    return [pod for pod in site.pilots() if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def told(site: Factory, name: str) -> dict[str, Any]:
    """Return the part of the provisioner's status that is about a template."""
    found: dict[str, Any] = site.status().get("templates", {}).get(name, {})
    return found
