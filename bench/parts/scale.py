"""Part `scale`: the load of many pilots on an API server, how it grows, and an extrapolation."""

import asyncio
import logging
import resource
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from bench import pictures
from bench.failures import contained, into
from bench.figures import say
from bench.goals import CROWD, RETURN
from bench.run import Run
from bench.scale.cluster import Cluster
from bench.scale.experiment import RESTART_SECONDS, Measured, Plan
from bench.scale.experiment import measure as measure_size
from bench.scale.server import Server, server
from bench.statistics import exponent, line, tail
from lab.errors import LabError

SHORT_IDLE_SECONDS = 20.0
RATES = (1.0, 10.0, 30.0)
PLANS: Final[Mapping[int, Plan]] = {
    10: Plan(SHORT_IDLE_SECONDS, RATES, restart=False),
    100: Plan(SHORT_IDLE_SECONDS, RATES, restart=False),
    1000: Plan(300.0, RATES, restart=True),
    10_000: Plan(300.0, RATES, restart=True),
}
"""Plans by number of pilots. With many pilots, the idle time is long enough for two things: every watch begins anew
once, and no pilot has bound lately when the API server restarts. Few pilots do not justify that time."""
FAR = 100_000
MEBIBYTES_PER_PILOT = 1.0
"""Memory of a pilot in the simulation and in the API server together. It decides which sizes fit this machine."""
_FITTED: Final[Mapping[str, tuple[float, str]]] = {
    "memory of the API server, MiB": (1024, "KiB"),
    "heap of the API server, MiB": (1024, "KiB"),
    "idle: API server, cores": (1e6, "millionths of a core"),
    "idle: requests a second": (3600, "an hour"),
}
"""Figures that a line is fitted to, each with the factor and the unit of its slope: the share of one pilot."""


def measure(run: Run) -> None:
    """Measure each size that fits this machine, one after another in the same API server. Raises LabError."""
    _allow_many_files()
    logging.getLogger("k8spilot").setLevel(logging.ERROR)  # what is done to the pilots here is no news
    free = psutil.virtual_memory().available / 2**20
    sizes = [size for size in PLANS if size * MEBIBYTES_PER_PILOT < free]
    if run.quick:
        sizes = sizes[:2]
    elif len(sizes) < len(PLANS):
        say(f"no more than {sizes[-1]} pilots: {free:.0f} MiB of memory are free")
    found = asyncio.run(_measure(run, sizes))
    _fit(run, found)
    if troubles := [f"{one.pilots} pilots: {words}" for one in found for words in one.troubles]:
        raise LabError("; ".join(troubles))


async def _measure(run: Run, sizes: Sequence[int]) -> list[Measured]:
    """Return the measurements of each size. A size that fails is the last one, and may be incomplete."""
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="k8spilot-scale-") as folder:
        async with server(run.lab.settings) as api:
            cluster = Cluster(run.lab, api, Path(folder))
            try:
                await cluster.prepare()
                for size in sizes:
                    found.append(one := Measured(size))
                    await _measure_one(run, api, cluster, one)
                    if one.troubles:
                        break
            finally:
                await cluster.close()
    return found


async def _measure_one(run: Run, api: Server, cluster: Cluster, one: Measured) -> None:
    with contained(into(one.troubles, "it breaks")):
        await measure_size(api, cluster, one, PLANS[one.pilots], say)
    _tell(run, one)


def _tell(run: Run, one: Measured) -> None:
    count = f"{one.pilots} pilots"

    def add(name: str, value: float | None, unit: str) -> None:
        if value is not None:
            run.figures.add(f"{count}{name}", value, unit)

    add(": memory of the API server", one.memory, "MiB")
    add(": heap of the API server", one.heap, "MiB")
    if one.heap is not None and one.heap_without is not None:
        add(": of that since the pilots of this size came", one.heap - one.heap_without, "MiB")
    add(": memory of etcd", one.etcd_memory, "MiB")
    add(" idle: API server", one.idle_cores, "cores")
    if one.idle_whole and one.idle_requests is not None:
        goal = CROWD if one.pilots == max(PLANS) else None
        words = f"{count} idle: requests on the API server in all, by its own count"
        run.figures.add(words, one.idle_requests, "a second", goal=goal)
        add(" idle: requests of the pilots", one.idle_of_pilots, "a second")
    for rate, seconds in one.binds.items():
        at = f", {rate:g} binds a second"
        words, worst = tail(seconds)
        run.figures.add(f"{count}{at}: PATCH to status seen", seconds, "s")
        add(f"{at}: {words}", worst, "s")
        add(f"{at}: not taken at once", one.refusals[rate], "requests")
        add(f"{at}: API server", one.bind_cores[rate], "cores")
        add(f"{at}: requests on the API server in all, by its own count", one.bind_requests[rate], "a bind")
        add(f"{at}: events about pods to all watchers", one.bind_events[rate], "a bind")
        add(f"{at}: the simulation", one.simulator_cores[rate], "cores")
    add(": requests of the pilot for a bind", one.requests_per_bind, "")
    _tell_restart(run, one)


def _tell_restart(run: Run, one: Measured) -> None:
    if one.away is None or one.spread is None or one.busiest_second is None:
        return
    add, what = run.figures.add, f"{one.pilots} pilots, API server started again"
    add(f"{what}: away", one.away, "s")
    add(f"{what}: requests", len(one.back) / one.pilots, "each")
    add(f"{what}: of these not taken", one.turned_away / one.pilots, "each")
    if one.all_back is not None:
        add(f"{what}: all watch", one.all_back, "s")
    add(f"{what}: busiest second", one.busiest_second, "requests")
    # Who is not back yet asks later than all who are: without them the spread says nothing.
    missing = "" if one.all_back is not None else f"not all are back after {RESTART_SECONDS:.0f} s"
    goal = RETURN[one.pilots].voided(missing) if one.pilots in RETURN else None
    add(f"{what}: lists spread over, 5 to 95 of 100", one.spread, "s", goal=goal)
    picture = run.picture(f"restart-{one.pilots}")
    pictures.timeline(picture, f"{one.pilots} pilots: requests after a restart", {"requests": one.back})


def _fit(run: Run, found: Sequence[Measured]) -> None:
    """Fit lines through the measurements: the share of one pilot, and the extrapolation to a hundred thousand."""
    measured = {
        name: [(float(size), value) for size, value in points if value is not None and value > 0]
        for name, points in _points(found).items()
    }
    for name, points in measured.items():
        if len(points) < 2:
            continue
        sizes, values = zip(*points, strict=True)
        fitted = line(sizes, values)
        say(
            f"{name}: {fitted.base:.3g} + {fitted.slope:.3g} * pilots, off by {100 * fitted.error:.0f} % at most;"
            f" grows with the power {exponent(sizes, values):.2f}"
        )
        factor, unit = _FITTED[name]
        what = name.rpartition(",")[0] or name
        run.figures.add(f"largest distance from a line: {what}", 100 * fitted.error, "%")
        run.figures.add(f"each pilot more, by that line: {what}", fitted.slope * factor, unit)
        run.figures.add(f"{FAR} pilots, by that line and not measured: {name}", fitted.at(FAR), "")
    if any(measured.values()):
        pictures.curves(run.picture("scale"), "By the number of pilots", "", measured, FAR)


def _points(found: Sequence[Measured]) -> dict[str, list[tuple[int, float | None]]]:
    values: dict[str, Sequence[float | None]] = {
        "memory of the API server, MiB": [one.memory for one in found],
        "heap of the API server, MiB": [one.heap for one in found],
        "idle: API server, cores": [one.idle_cores for one in found],
        "idle: requests a second": [one.idle_requests if one.idle_whole else None for one in found],
    }
    return {name: [(one.pilots, value) for one, value in zip(found, values[name], strict=True)] for name in _FITTED}


def _allow_many_files() -> None:
    """Allow a connection for each pilot, here and in the API server, which inherits the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
