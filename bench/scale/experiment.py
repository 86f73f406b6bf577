"""The experiment with a number of pilots: some bind, all are idle, the API server is restarted."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

from bench.scale.cluster import Cluster, between
from bench.scale.pilots import PATIENCE_SECONDS
from bench.scale.server import API, ETCD, Server
from bench.statistics import busiest, percentile

BIND_SECONDS = 10.0
SETTLE_SECONDS = 5.0
RESTART_SECONDS = 180.0
ROUND_SECONDS = 300.0
"""Time in which each pilot begins its watch anew at least once (kube/reflector.py: after 240 to 300 s)."""


@dataclass(frozen=True)
class Load:
    """Processor time and memory of both processes at one moment."""

    at: float
    seconds: Mapping[str, float]
    """Processor time of each process so far."""
    mebibytes: Mapping[str, float]

    @classmethod
    def of(cls, server: Server) -> "Load":
        """Return the present load."""
        seconds, mebibytes = {}, {}
        for name, process in server.processes().items():
            times = process.cpu_times()
            seconds[name] = times.user + times.system
            mebibytes[name] = process.memory_info().rss / 2**20
        return cls(time.monotonic(), seconds, mebibytes)

    def since(self, before: "Load", name: str) -> float:
        """Return the cores that a process has used since `before`."""
        return (self.seconds[name] - before.seconds[name]) / (self.at - before.at)


@dataclass
class Measured:
    """Measurements with `pilots` pilots; None: not measured."""

    pilots: int
    troubles: list[str] = field(default_factory=list)
    """Descriptions of failures."""
    heap_without: float | None = None
    """Heap in use of the API server with the pods and before their pilots' start, MiB."""
    heap: float | None = None
    """Heap in use of the API server with the pilots, MiB."""
    memory: float | None = None
    """Resident memory of the API server with the pilots, MiB."""
    etcd_memory: float | None = None
    idle_requests: float | None = None
    """Requests a second of all clients while the pilots are idle, by the API server's count. They include those of
    the simulated kubelets, of the API server itself, and of the measurement."""
    idle_of_pilots: float | None = None
    """Requests a second of the pilots alone."""
    idle_cores: float | None = None
    """Cores that the API server uses while the pilots are idle; its use without pilots is a part of it."""
    idle_whole: bool = False
    """Whether the time was long enough for each pilot to begin its watch anew once."""
    binds: dict[float, list[float]] = field(default_factory=dict)
    """Seconds from PATCH to status of each bind, by the rate of binds a second."""
    refusals: dict[float, int] = field(default_factory=dict)
    """Requests that the API server refused and the pilots repeated, by the rate of binds."""
    bind_cores: dict[float, float] = field(default_factory=dict)
    bind_requests: dict[float, float] = field(default_factory=dict)
    """Requests of all clients for each bind, by the API server's count and by the rate of binds."""
    bind_events: dict[float, float] = field(default_factory=dict)
    """Watch events about pods to all clients for each bind, by the rate of binds."""
    requests_per_bind: float | None = None
    """Requests of the pilot for each bind, without the refused ones."""
    away: float | None = None
    """Seconds from the end of the API server to its readiness at its restart."""
    back: list[float] = field(default_factory=list)
    """Seconds from the API server's readiness to each request of the pilots after the restart."""
    lists: list[float] = field(default_factory=list)
    """Seconds from the API server's readiness to each list among these requests. Each pilot that comes back lists
    once."""
    turned_away: int = 0
    """Number of these requests that were refused: the server has just started, has forgotten a version (410), or is
    overloaded (429)."""
    all_back: float | None = None
    """Seconds from the API server's readiness until all pilots watch again; None if not all did in time."""
    simulator_cores: dict[float, float] = field(default_factory=dict)
    """Cores that this process used at each rate. Near 1, the figures include the slowness of this process."""

    @property
    def spread(self) -> float | None:
        """Seconds between the first 5 and the last 5 of a hundred lists after a restart."""
        return percentile(self.lists, 95) - percentile(self.lists, 5) if self.lists else None

    @property
    def busiest_second(self) -> int | None:
        """Most requests in a second after a restart."""
        return busiest(self.back) if self.back else None


@dataclass(frozen=True)
class Plan:
    """Measurements to make with a number of pilots."""

    idle_seconds: float
    rates: tuple[float, ...]
    """Rates of binds, in a second."""
    restart: bool


async def measure(server: Server, cluster: Cluster, found: Measured, plan: Plan, say: Callable[[str], None]) -> None:
    """Start pilots until there are `found.pilots`, and measure. Raises LabError, ClusterError, TimeoutError."""
    count = found.pilots
    first = len(cluster.pilots)
    await cluster.make_pods(count)
    await asyncio.sleep(SETTLE_SECONDS)
    found.heap_without = await server.heap()
    began = time.monotonic()
    await cluster.begin(first)
    say(f"{count} pilots watch after {time.monotonic() - began:.0f} s")
    await asyncio.sleep(SETTLE_SECONDS)
    now = Load.of(server)
    found.memory, found.etcd_memory = now.mebibytes[API], now.mebibytes[ETCD]
    found.heap = await server.heap()
    for rate in plan.rates:
        await _bind(server, cluster, found, rate)
    # After the binds: where a restart follows, minutes later, nobody waits for the outcome of a change any more.
    await _idle(server, cluster, found, plan.idle_seconds)
    if plan.restart:
        await _restart(server, cluster, found)


async def _idle(server: Server, cluster: Cluster, found: Measured, seconds: float) -> None:
    """Measure while the pilots are idle."""
    counted, before, began = await server.counters(), Load.of(server), time.monotonic()
    await asyncio.sleep(seconds)
    after, now = Load.of(server), time.monotonic()
    found.idle_requests = (await server.counters()).since(counted).total / (now - began)
    found.idle_of_pilots = len(between(cluster.requests, began, now)) / (now - began)
    found.idle_whole = seconds >= ROUND_SECONDS
    found.idle_cores = after.since(before, API)


async def _bind(server: Server, cluster: Cluster, found: Measured, rate: float) -> None:
    """Change pilots' images in turn, `rate` in a second; one pilot at most once a second, as by a kubelet."""
    if rate > found.pilots:
        return
    counted, before, began, own = await server.counters(), Load.of(server), time.monotonic(), _processor()
    tasks = []
    for number in range(int(rate * BIND_SECONDS)):
        pause = began + number / rate - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        tasks.append(asyncio.create_task(cluster.pilots[number % found.pilots].bind()))
    _, late = await asyncio.wait(tasks, timeout=PATIENCE_SECONDS + 60)
    for task in late:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    seconds = [end for end in ends if isinstance(end, float)]
    if len(seconds) < len(tasks):
        found.troubles.append(f"{len(tasks) - len(seconds)} of {len(tasks)} binds failed at {rate:g} a second")
    if not seconds:
        return
    after = Load.of(server)
    asked = between(cluster.requests, began, time.monotonic())
    since = (await server.counters()).since(counted)
    found.binds[rate] = seconds
    found.refusals[rate] = sum(request.refused for request in asked)
    found.bind_cores[rate] = after.since(before, API)
    found.bind_requests[rate] = since.total / len(tasks)
    found.bind_events[rate] = since.events["pods"] / len(tasks)
    found.simulator_cores[rate] = (_processor() - own) / (after.at - before.at)
    patches = [request for request in asked if request.verb == "patch" and not request.refused]
    found.requests_per_bind = len(patches) / len(tasks)


async def _restart(server: Server, cluster: Cluster, found: Measured) -> None:
    """Restart the API server; measure the pilots' requests until all watch again."""
    gone = time.monotonic()
    await server.stop_api()
    ready = await server.start_api()
    found.away = ready - gone
    try:
        await cluster.all_watch(RESTART_SECONDS)
        found.all_back = time.monotonic() - ready
        await asyncio.sleep(2)
    except TimeoutError:
        found.troubles.append(f"not all watch again {RESTART_SECONDS:.0f} s after the API server's restart")
    finally:
        asked = between(cluster.requests, ready, time.monotonic())
        found.back = [request.at - ready for request in asked]
        found.lists = [request.at - ready for request in asked if request.verb == "list" and not request.refused]
        found.turned_away = sum(request.refused for request in asked)


def _processor() -> float:
    """Return the processor seconds that this process has used so far."""
    used = psutil.Process().cpu_times()
    return float(used.user + used.system)
