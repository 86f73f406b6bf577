"""Demand curves, drawn by a seed. Each call draws the same jobs anew, so that each contestant has jobs of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bench.provisioning.demand import Curve, Job, Outage, Size

HOUR = 3600.0
MEMORY_OF_CPU = 4096
"""MiB for each CPU that a job requests: PRP's least request, so that both have slots of the same size."""
ONE = Size(1, MEMORY_OF_CPU)

Draw = Callable[[int], Curve]


def burst(seed: int) -> Curve:
    """Return many jobs at once, more than the cluster has CPUs."""
    rng = np.random.default_rng([seed, 1])
    seconds = _durations(rng, 400, 600, 0.7)
    jobs = [_job(place, place % 2, ONE, 60.0, one) for place, one in enumerate(seconds)]
    return Curve("burst", "400 jobs of some 10 min at once, of 2 users", jobs)


def trickle(seed: int) -> Curve:
    """Return a job every minute on average."""
    rng = np.random.default_rng([seed, 2])
    times = list(_arrivals(rng, 6 * HOUR, lambda _: 1 / 60, 1 / 60))
    jobs = [
        _job(place, place % 2, ONE, time, seconds)
        for place, (time, seconds) in enumerate(zip(times, _durations(rng, len(times), 300, 0.8), strict=True))
    ]
    return Curve("trickle", "a job of some 5 min each minute for 6 h, of 2 users", jobs)


def day(seed: int) -> Curve:
    """Return 24 hours: a morning that ramps up, a busy day, an evening that ends it."""
    rng = np.random.default_rng([seed, 3])
    times = list(_arrivals(rng, 24 * HOUR, _day_rate, _DAY_RATE))
    sizes = rng.choice([1, 4], len(times), p=[0.8, 0.2])
    jobs = [
        _job(place, int(user), _size(int(cpus)), time, seconds)
        for place, (time, cpus, user, seconds) in enumerate(
            zip(times, sizes, rng.integers(5, size=len(times)), _durations(rng, len(times), 900, 0.8), strict=True)
        )
    ]
    return Curve("day", f"a day of {len(jobs)} jobs of 1 and 4 CPUs and some 15 min, of 5 users", jobs)


def short(seed: int) -> Curve:
    """Return streams of very short jobs."""
    rng = np.random.default_rng([seed, 4])
    jobs: list[Job] = []
    for user in range(4):
        for time in _arrivals(rng, 2 * HOUR, lambda _: 1 / 600, 1 / 600):
            for seconds in rng.uniform(1, 30, int(rng.integers(50, 400))):
                jobs.append(_job(len(jobs), user, ONE, time, float(seconds)))
    jobs.sort(key=lambda job: job.submitted)
    return Curve("short", f"{len(jobs)} jobs of 1 to 30 s within 2 h, in batches, of 4 users", jobs)


def mixed(seed: int) -> Curve:
    """Return mixed sizes, of which users remove many again; a full cluster, and an image that cannot be pulled."""
    rng = np.random.default_rng([seed, 5])
    jobs: list[Job] = []
    for user in range(4):
        for time in _arrivals(rng, 4 * HOUR, lambda _: 1 / 600, 1 / 600):
            size = _size(int(rng.choice([1, 2, 4, 8], p=[0.4, 0.3, 0.2, 0.1])))
            removal = time + float(rng.uniform(30, 180))
            for place, seconds in enumerate(_durations(rng, int(rng.integers(10, 60)), 400, 0.8)):
                job = _job(len(jobs), user, size, time, seconds)
                job.removal = removal if place % 2 else None
                jobs.append(job)
    jobs.sort(key=lambda job: job.submitted)
    outages = [Outage(4200, 6000), Outage(9000, 10800, cpus=2)]
    words = f"{len(jobs)} jobs of 1 to 8 CPUs within 4 h, of which 4 users remove half; two outages"
    return Curve("mixed", words, jobs, outages)


CURVES: Mapping[str, Draw] = {"burst": burst, "trickle": trickle, "day": day, "short": short, "mixed": mixed}

_DAY_RATE = 0.1
"""Jobs a second at the busiest time of the day."""
_HOURS = ((0, 0.03), (7, 0.03), (9, 1.0), (12, 0.9), (13, 0.7), (14, 1.0), (17, 0.9), (20, 0.03), (24, 0.03))
"""Hours of the day, and the share of the busiest rate at each; straight lines between them."""


def _day_rate(time: float) -> float:
    hours, parts = zip(*_HOURS, strict=True)
    return _DAY_RATE * float(np.interp(time / HOUR, hours, parts))


def _arrivals(
    rng: np.random.Generator, until: float, rate: Callable[[float], float], highest: float
) -> Iterator[float]:
    """Return the times of a Poisson process whose rate changes (thinning)."""
    time = 0.0
    while (time := time + float(rng.exponential(1 / highest))) < until:
        if rng.random() * highest < rate(time):
            yield time


def _durations(rng: np.random.Generator, number: int, median: float, spread: float) -> Sequence[float]:
    return [float(one) for one in rng.lognormal(np.log(median), spread, number)]


def _job(number: int, user: int, size: Size, time: float, seconds: float) -> Job:
    return Job(number, _user(user), size, time, max(seconds, 1.0))


def _user(number: int) -> str:
    return f"user{number}"


def _size(cpus: int) -> Size:
    return Size(cpus, cpus * MEMORY_OF_CPU)
