"""The provisioner with a real API server, 10,000 pilots and 100,000 idle jobs: `python -m bench.provisioning.scale`.

The API server is a second one beside the lab's (bench/scale/server.py), with the pods of all pilots as objects. The
pool is simulated: a worker process makes the ads that access points and collector would answer, and passes them
through the provisioner's own matching. So the time of the pool's daemons is not in the figures.
"""

import asyncio
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
import yaml
from kubernetes.aio import client

from bench.figures import say
from bench.provisioning import scale_pool
from bench.scale.server import Server, server
from k8spilot.provisioner import pool_worker, report
from k8spilot.provisioner.actuator import pod_of
from k8spilot.provisioner.cluster import Cluster
from k8spilot.provisioner.controller import Controller
from k8spilot.provisioner.leader import Leadership
from k8spilot.provisioner.model import PoolView, Question
from k8spilot.provisioner.pool import Pool
from k8spilot.provisioner.settings import ProvisionerSettings
from k8spilot.provisioner.templates import version_of
from lab.api import Lab
from lab.factory import Factory, TemplateOf

NAMESPACE: Final = "default"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}"
PATIENCE_SECONDS: Final = 60.0
PILOTS, GROUPS, JOBS, TEMPLATES = 10_000, 500, 100_000, 5
TURNS: Final = 10
QUIET_SECONDS: Final = 30.0
"""Time in which requests are counted."""
TARGET: Final = Path("build/provisioner-scale.json")


class SimulatedPool(Pool):
    """The pool of scale_pool.py, in a worker process as the real one."""

    def __init__(self, pods: list[str]) -> None:
        super().__init__(Path("/dev/null"))
        self._simulator = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), pool_worker.set_up, (str(self._configuration),)
        )
        self._pods = pods

    async def look(self, question: Question) -> PoolView:
        """Return what such a pool would say."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._simulator, scale_pool.look, question, self._pods, GROUPS, JOBS)

    def processes(self) -> Iterable[psutil.Process]:
        """The worker; multiprocessing's own helper is not of interest."""
        return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]

    def close(self) -> None:
        """End the worker."""
        self._simulator.kill_workers()


async def main() -> None:
    """Measure, print and write the figures."""
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
        say(f"{name:40} {value}")


async def _make_templates(lab: Lab, api: Server) -> list[Any]:
    """Make PodTemplates of the lab's pilot, and what they name."""
    names = [f"cpu{place}" for place in range(TEMPLATES)]
    limits = {"max-pilots": "20000", "max-pending": "200", "max-new-per-minute": "1"}
    folder = Factory(lab, "scale-provisioner").write([TemplateOf(name, limits) for name in names], {})
    found = []
    for document in yaml.safe_load_all(lab.kubectl("kustomize", str(folder))):
        document["metadata"]["namespace"] = NAMESPACE
        if document["kind"] == "ConfigMap":
            await api.ask("POST", f"{PATH}/configmaps", document)
        elif document["kind"] == "PodTemplate":
            found.append(json.loads(await api.ask("POST", f"{PATH}/podtemplates", document)))
        elif document["kind"] == "ServiceAccount":
            await api.ask("POST", f"{PATH}/serviceaccounts", document)
    return found


async def _make_pods(api: Server, templates: list[Any]) -> list[str]:
    """Make the pods of pilots that run; return their uids."""

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


async def _measure(api: Server, pods: list[str], pool_host: str) -> dict[str, Any]:
    """Take turns, and return what they cost."""
    settings = ProvisionerSettings.of({"CONDOR_HOST": pool_host, "POD_NAME": "scale", "POD_NAMESPACE": NAMESPACE})
    configuration = client.Configuration(host=api.url)
    configuration.ssl_ca_cert = str(api.authority)
    configuration.cert_file, configuration.key_file = map(str, api.administrator)
    configuration.retries = False
    pool = SimulatedPool(pods)
    async with client.ApiClient(configuration) as session, asyncio.TaskGroup() as tasks:
        cluster = Cluster(session, NAMESPACE)
        leadership = Leadership(cluster, settings.pod_name)
        controller = Controller(settings, cluster, pool, leadership)
        began = time.monotonic()
        running = [
            tasks.create_task(work())
            for work in (controller.pods.run, controller.templates.reflector.run, leadership.run)
        ]
        await controller.pods.listed.wait()
        await controller.templates.reflector.listed.wait()
        figures: dict[str, Any] = {"seconds of the first list": round(time.monotonic() - began, 2)}
        async with asyncio.timeout(PATIENCE_SECONDS):
            await leadership.changed.wait()
        turns = [await _turn(controller) for _ in range(TURNS)]
        running.append(tasks.create_task(controller.run()))
        before = await api.counters()
        await asyncio.sleep(QUIET_SECONDS)
        counted = (await api.counters()).since(before)
        processes = [psutil.Process(), *pool.processes()]
        memory = [process.memory_full_info().uss / 2**20 for process in processes]
        for task in running:
            task.cancel()
    pool.close()
    plan = controller.metrics.plan
    assert plan is not None
    states = sum((one.states for one in plan.templates.values()), Counter[str]())
    return {
        "pilots": {str(state): number for state, number in states.items()},
        "idle jobs": JOBS,
        "groups of jobs": GROUPS,
        **figures,
        "seconds of a turn, median": round(median(turns), 2),
        "seconds of a turn, longest": round(max(turns), 2),
        f"API requests in {QUIET_SECONDS:.0f} s": {
            f"{verb} {resource}": number for (verb, resource), number in counted.requests.items() if number
        },
        "memory of the two processes, MiB": [round(one) for one in memory],
        "next": {name: report.next_step(one) for name, one in plan.templates.items()},
    }


async def _turn(controller: Controller) -> float:
    began = time.monotonic()
    await controller.turn()
    return time.monotonic() - began


if __name__ == "__main__":
    asyncio.run(main())
