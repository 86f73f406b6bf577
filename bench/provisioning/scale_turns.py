"""Program: turns of the provisioner for scale.py. It reads its task from standard input, and prints figures."""

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from kubernetes.aio import client

from bench.figures import say
from bench.provisioning import scale_pool
from k8spilot.provisioner import report
from k8spilot.provisioner.cluster import NamespaceClient
from k8spilot.provisioner.controller import Controller
from k8spilot.provisioner.leader import Leadership
from k8spilot.provisioner.pool import worker
from k8spilot.provisioner.pool.client import PoolClient
from k8spilot.provisioner.pool.configuration import PoolConfiguration
from k8spilot.provisioner.pool.query import PoolQuery, PoolView
from k8spilot.provisioner.settings import ProvisionerSettings

GROUPS, JOBS = 500, 100_000
TURNS: Final = 10
QUIET_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 60.0


class SimulatedPool(PoolClient):
    """The pool of scale_pool.py, in a worker process as the real one."""

    def __init__(self, pods: list[str]) -> None:
        super().__init__(PoolConfiguration(Path("/nonexistent"), ""))
        suspects = str(Path(tempfile.mkdtemp(prefix="k8spilot-scale-")) / "suspect")
        self._simulator = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), worker.set_up, ("/dev/null", suspects)
        )
        self._pods = pods

    async def run(self, query: PoolQuery) -> PoolView:
        """Return the view of the simulated pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._simulator, scale_pool.run, query, self._pods, GROUPS, JOBS)

    def processes(self) -> Iterable[psutil.Process]:
        """Return the worker; multiprocessing's own helper does not count."""
        return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]

    def close(self) -> None:
        """End the worker."""
        self._simulator.kill_workers()


async def main(asked: dict[str, Any]) -> None:
    """Take turns, and print their costs."""
    values = {"CONDOR_HOST": asked["pool"], "POD_NAME": "scale", "POD_NAMESPACE": asked["namespace"]}
    configuration = client.Configuration(host=asked["url"])
    configuration.ssl_ca_cert = asked["authority"]
    configuration.cert_file, configuration.key_file = asked["certificate"], asked["key"]
    configuration.retries = None
    pool = SimulatedPool(asked["pods"])
    async with client.ApiClient(configuration) as session, asyncio.TaskGroup() as tasks:
        cluster = NamespaceClient(session, asked["namespace"])
        leadership = Leadership(cluster, "scale")
        controller = Controller(ProvisionerSettings.of(values), cluster, pool, leadership)
        began = time.monotonic()
        running = [
            tasks.create_task(work())
            for work in (controller.pods.run, controller.templates.reflector.run, leadership.run)
        ]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await controller.pods.listed.wait()
            await controller.templates.reflector.listed.wait()
            listed = time.monotonic() - began
            await leadership.acquired.wait()
        turns = [await _turn(controller) for _ in range(TURNS)]
        plan = controller.metrics.plan
        assert plan is not None
        states = sum((one.states for one in plan.templates.values()), Counter[str]())
        figures = {
            "pilots": {str(state): number for state, number in states.items()},
            "idle jobs": JOBS,
            "groups of jobs": GROUPS,
            "seconds of the first list": round(listed, 2),
            "seconds of the first turn": round(turns[0], 2),
            "seconds of a later turn, median": round(median(turns[1:]), 2),
            "seconds of a later turn, longest": round(max(turns[1:]), 2),
            "next": {name: report.next_step(one, time.time()) for name, one in plan.templates.items()},
        }
        say(json.dumps(figures))
        running.append(tasks.create_task(controller.run()))
        await asyncio.sleep(QUIET_SECONDS)
        memory = [one.memory_full_info().uss / 2**20 for one in (psutil.Process(), *pool.processes())]
        say(json.dumps({"memory of both processes, MiB": [round(one) for one in memory]}))
        for task in running:
            task.cancel()
    pool.close()


async def _turn(controller: Controller) -> float:
    began = time.monotonic()
    await controller.turn()
    return time.monotonic() - began


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
