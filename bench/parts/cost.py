"""Part `cost`: requests to the API server, memory, processor time, size of the image, duration of the start."""

import time
from dataclasses import dataclass

from bench import api_server
from bench.execution_points import APPTAINER, K8SPILOT, PATIENCE_S, ExecutionPoint, k8spilot
from bench.goals import MEMORY_BUSY, MEMORY_IDLE, PROCESSOR_IDLE, REQUESTS
from bench.images import size
from bench.native import POD_PER_JOB, PodPerJob
from bench.run import Run
from bench.statistics import Measurement
from bench.used import Used
from lab import pilot
from lab.settings import PILOT_NAMESPACE
from soak import pods as engine

ROUNDS = 3
JOBS, PODS = 8, 2
"""Jobs of an execution point, and pods of a batch/v1 Job, in each round."""
IDLE_SECONDS = 20
"""Idle time of a round. The kernel counts processor time in hundredths of a second: 0.05 % of a core in this time."""
ALONE = "k8spilot alone (engine and supervisor)"


def measure(run: Run) -> None:
    """Measure pilots without jobs and with jobs, the sizes of images, and the start of a pilot."""
    point, points = run.k8spilot, run.points()
    time.sleep(3)
    _idle(run, point, points)
    _busy(run, points)
    _memory_busy(run, point)
    _images(run)
    _start(run)


def _idle(run: Run, point: ExecutionPoint, points: dict[str, ExecutionPoint]) -> None:
    cores: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    requests, resident, own, alone = [], [], [], []
    for _ in range(run.times(ROUNDS, 1)):
        asked, before = api_server.of_pilot(run.lab, point.pod), engine.measure(run.lab, point.pod)
        used, began = run.each(points, Used.by), time.monotonic()
        time.sleep(IDLE_SECONDS)
        now, passed = run.each(points, Used.by), time.monotonic() - began
        after = engine.measure(run.lab, point.pod)
        for name, one in now.items():
            cores.setdefault(name, []).append((one.seconds - used[name].seconds) / passed * 100)
            memory.setdefault(name, []).append(one.mebibytes)
        requests.append((api_server.of_pilot(run.lab, point.pod) - asked) * 60 / passed)
        resident.append(after.resident)
        own.append(after.own)
        alone.append((after.cpu - before.cpu) / passed * 100)
    run.compare("idle, HTCondor's container and dockerd", {name: cores[name] for name in points}, "% of a core")
    run.compare("memory idle, HTCondor's container and dockerd", {name: memory[name] for name in points}, "MiB")
    add = run.figures.add
    add("idle: API requests a minute, by the pilot's count", requests, "")
    add(f"{ALONE}: memory idle (Rss)", resident, "MiB", goal=MEMORY_IDLE)
    add(f"{ALONE}: of that no other process's", own, "MiB")
    add(f"{ALONE}: idle", alone, "% of a core", goal=PROCESSOR_IDLE)


@dataclass
class Busy:
    """Costs of a job, one value for each round."""

    processor: list[float]
    """Processor seconds of HTCondor's container, and of the programs that start the jobs' containers: dockerd, or
    kubelet and containerd."""
    node: list[float]
    """Processor seconds of the kubelet and containerd, a part of `processor`."""
    about: list[float]
    """Requests about pods, Events and Jobs, by all clients."""
    events: list[float]
    """Watch events about pods that were sent to clients."""

    def add(self, seen: api_server.Counters, jobs: int, before: Used | None = None, after: Used | None = None) -> None:
        """Add the values of a round."""
        self.about.append(seen.about_pods / jobs)
        self.events.append(seen.events["pods"] / jobs)
        if before is not None and after is not None:
            node = after.node - before.node
            self.processor.append((after.seconds - before.seconds + node) / jobs)
            self.node.append(node / jobs)


def _busy(run: Run, points: dict[str, ExecutionPoint]) -> None:
    """Run empty jobs back to back; measure the processor time and the requests of each."""
    busy = {name: Busy([], [], [], []) for name in (*points, POD_PER_JOB)}
    served: list[float] = []
    patches: list[float] = []
    counted: list[float] = []
    alone: list[float] = []

    def of(point: ExecutionPoint) -> Measurement:
        def measurement() -> list[float]:
            before, used = api_server.counters(run.lab), Used.by(point)
            point.run(run.image, count=JOBS)
            now = Used.by(point)
            busy[point.name].add(seen := api_server.counters(run.lab).since(before), JOBS, used, now)
            if point.name == K8SPILOT:
                served.append(seen.flows[api_server.SERVICE_ACCOUNTS] / JOBS)
                patches.append(seen.requests["PATCH", "pods"] / JOBS)
            return []

        return measurement

    def ours() -> list[float]:
        point = points[K8SPILOT]
        asked, own = api_server.of_pilot(run.lab, point.pod), engine.measure(run.lab, point.pod)
        of(point)()
        alone.append((engine.measure(run.lab, point.pod).cpu - own.cpu) / JOBS)
        counted.append((api_server.of_pilot(run.lab, point.pod) - asked) / JOBS)
        return []

    pods = PodPerJob(run.lab, run.pod("requests"), run.image)

    def of_pods() -> list[float]:
        before = api_server.counters(run.lab)
        pods.run(PODS)
        busy[POD_PER_JOB].add(api_server.counters(run.lab).since(before), PODS)
        return []

    contestants = {name: of(point) for name, point in points.items()} | {K8SPILOT: ours, POD_PER_JOB: of_pods}
    kept = {name: busy[name] for name in run.in_turn(contestants, run.times(ROUNDS, 1))}
    used = {name: one.processor for name, one in kept.items() if one.processor}
    run.compare("processor for a 0 s job, HTCondor and who starts its containers", used, "s")
    add = run.figures.add
    add(f"of that kubelet and containerd, which serve all pods: {K8SPILOT}", busy[K8SPILOT].node, "s")
    add(f"processor for a 0 s job: {ALONE}", alone, "s")
    words = "API requests a job about pods and Events, everybody's, by the API server's count"
    run.compare(words, {name: one.about for name, one in kept.items()}, "")
    run.compare("events about pods a job, to all watchers", {name: one.events for name, one in kept.items()}, "")
    if any(served):
        add("API requests a job, service accounts', by the API server's count", served, "", goal=REQUESTS)
    add("API requests a job, PATCH of pods, by the API server's count", patches, "")
    add("API requests a job, by the pilot's count", counted, "")


def _memory_busy(run: Run, point: ExecutionPoint) -> None:
    """Measure memory while jobs run one after another, apart from the figures above: it uses processor time itself."""
    resident, whole = [], []
    few = run.times(ROUNDS, 2)
    with point.submit(run.image, "sleep 500", count=few + 1) as jobs:
        for proc in range(few):
            jobs.wait("ExecuteEvent", proc=proc, timeout=PATIENCE_S)
            resident.append(engine.measure(run.lab, point.pod).resident)
            whole.append(Used.by(point).mebibytes)
        point.succeeded(jobs, few)
    run.figures.add(f"{ALONE}: memory busy (Rss)", resident, "MiB", goal=MEMORY_BUSY)
    run.figures.add(f"memory busy, HTCondor's container and dockerd: {K8SPILOT}", whole, "MiB")


def _images(run: Run) -> None:
    found = {K8SPILOT: [size(run.lab.image) / 2**20], "HTCondor alone": [size(run.lab.pool_image) / 2**20]}
    if (point := run.point(APPTAINER)) is not None:
        get = ("get", "pod", point.pod, "-n", point.namespace, "-o", "jsonpath={.spec.containers[0].image}")
        found[APPTAINER] = [size(run.lab.kubectl(*get)) / 2**20]
    run.compare("image, not compressed", found, "MiB")


def _start(run: Run) -> None:
    """Measure from before `kubectl apply` until the pool can match the slot; the image is on the node."""
    whole, own = [], []
    for _ in range(run.times(ROUNDS, 1)):
        name = run.pod("start")
        pilot.delete(run.lab, name)
        began = time.monotonic()
        with k8spilot(run.lab, name):
            whole.append(time.monotonic() - began)
            get = ("get", "pod", name, "-n", PILOT_NAMESPACE, "-o")
            began_at = run.lab.kubectl(*get, "jsonpath={.status.containerStatuses[0].state.running.startedAt}")
            created_at = run.lab.kubectl(*get, "jsonpath={.metadata.creationTimestamp}")
            own.append(_seconds(began_at) - _seconds(created_at))
    run.figures.add("pod created -> its containers run, in whole seconds", own, "s")
    run.figures.add("pod asked for -> slot in the pool", whole, "s")


def _seconds(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))
