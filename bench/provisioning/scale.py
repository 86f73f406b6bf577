"""The provisioner with a real API server, 10,000 pilots and 100,000 idle jobs: `python -m bench.provisioning.scale`.

The API server is a second one beside the lab's (bench/scale/server.py), with the pods of all pilots as objects. The
provisioner runs in a process of its own (scale_turns.py), with a pool that is simulated (scale_pool.py).
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from bench.figures import say
from bench.scale.server import Server, server
from k8spilot.provisioner.actuator import pod_of
from k8spilot.provisioner.templates.pod_template import version_of
from lab.api import Lab
from lab.errors import LabError
from lab.factory import Factory, TemplateOf

NAMESPACE: Final = "default"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}"
CRON_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
PILOTS, TEMPLATES = 10_000, 5
TARGET: Final = Path("build/provisioner-scale.json")


async def main() -> None:
    """Measure, print and write the figures. Raises LabError."""
    lab = Lab.attach()
    async with server(lab.settings) as api:
        templates = await _make_templates(lab, api)
        began = time.monotonic()
        pods = await _make_pods(api, templates)
        say(f"{len(pods)} pods made in {time.monotonic() - began:.0f} s")
        figures = await _measure(api, pods, lab.pool_host)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(figures, indent=1) + "\n")
    for name, value in figures.items():
        say(f"{name:36} {value}")


async def _measure(api: Server, pods: list[str], pool_host: str) -> dict[str, Any]:
    """Run the provisioner, which prints figures of its turns, and then those of a time without changes."""
    certificate, key = map(str, api.administrator)
    asked = {
        "url": api.url,
        "authority": str(api.authority),
        "certificate": certificate,
        "key": key,
        "namespace": NAMESPACE,
        "pool": pool_host,
        "pods": pods,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.provisioning.scale_turns"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    await process.stdin.drain()
    turns = await process.stdout.readline()
    before = await api.counters()
    quiet = await process.stdout.readline()
    counted = (await api.counters()).since(before)
    if await process.wait() or not quiet:
        raise LabError("the provisioner has failed; its words are above")
    ours = ("configmaps", "leases", "pods", "cronjobs", "events")
    requests = {
        f"{verb} {name}": number for (verb, name), number in counted.requests.items() if name in ours and number
    }
    return {**json.loads(turns), **json.loads(quiet), "API requests in that time": requests}


async def _make_templates(lab: Lab, api: Server) -> list[Any]:
    """Make templates of the lab's pilot, and the objects that they name; return the templates."""
    names = [f"cpu{place}" for place in range(TEMPLATES)]
    limits = {"max-pilots": "20000", "max-pending": "200", "max-new-per-minute": "1"}
    folder = Factory(lab, "scale-provisioner").write([TemplateOf(name, limits) for name in names], {})
    found = []
    for document in yaml.safe_load_all(lab.kubectl("kustomize", str(folder))):
        document["metadata"]["namespace"] = NAMESPACE
        if document["kind"] == "ConfigMap":
            await api.ask("POST", f"{PATH}/configmaps", document)
        elif document["kind"] == "CronJob":
            found.append(json.loads(await api.ask("POST", CRON_JOBS, document)))
        elif document["kind"] == "ServiceAccount":
            await api.ask("POST", f"{PATH}/serviceaccounts", document)
    return found


async def _make_pods(api: Server, templates: list[Any]) -> list[str]:
    """Make the pods of running pilots; return their uids."""

    async def make(number: int) -> str:
        template = templates[number % len(templates)]
        pod = pod_of(template, f"{template['metadata']['name']}-20261126-1200-{number:05d}", version_of(template))
        made = json.loads(await api.ask("POST", f"{PATH}/pods", pod))
        running = {"running": {"startedAt": "2026-11-26T12:00:00Z"}}
        made["status"] = {
            "phase": "Running",
            "containerStatuses": [
                {"name": name, "ready": True, "restartCount": 0, "image": "i", "imageID": "i", "state": running}
                for name in ("pilot", "payload")
            ],
        }
        await api.ask("PUT", f"{PATH}/pods/{made['metadata']['name']}/status", made)
        return str(made["metadata"]["uid"])

    return await asyncio.gather(*map(make, range(PILOTS)))


if __name__ == "__main__":
    asyncio.run(main())
