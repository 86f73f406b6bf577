"""Part `slots`: one pod with eight payload containers, beside other execution points that run eight jobs at a time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench import pictures
from bench.execution_points import K8SPILOT, ExecutionPoint
from bench.figures import say
from bench.goals import SLOTS_MEMORY, SLOTS_RATE, SLOTS_START
from bench.parts.slot_requests import Requests, rest
from bench.programs import used
from bench.run import Run
from bench.statistics import Measurement, in_turn
from bench.used import Used
from lab.errors import LabError
from soak import pods as engine

SLOTS = 8
JOBS, OTHERS = 150, 60
"""Empty jobs in the queue: for k8spilot, and for the other execution points. The first eight ends do not count."""
LEAST_SECONDS = 0.001
"""Least processor seconds of a program for a job that are shown."""
STARTS = 6
"""Isolated jobs on each pilot."""
WAVES = 2
REST_SECONDS = 3
"""Seconds that each job of a wave sleeps, so that its end does not disturb another's start."""
LEAD_SECONDS = 8
"""Seconds from the request for eight jobs until all have probably begun."""
_TRIES = 3
ALONE = "k8spilot alone (engine and supervisor)"


def measure(run: Run) -> None:
    """Measure rate, processor and waves of all execution points; start, requests and memory of pilots."""
    points = run.points(SLOTS)
    eight = points[K8SPILOT]
    memory = Memory(run, eight)
    memory.look("idle")
    _rate(run, points)
    memory.look(f"after {JOBS} jobs")
    _waves(run, points, memory)
    requests = Requests(run, eight)
    try:
        _starts(run, requests)
        requests.others()
    finally:
        requests.tell()


@dataclass
class Memory:
    """Resident memory of the engine and the supervisor."""

    run: Run
    point: ExecutionPoint
    slots: int = SLOTS

    def look(self, when: str) -> None:
        """Add the resident memory, with its goal if there are several slots, and the part that is not shared."""
        seen = engine.measure(self.run.lab, self.point.pod)
        goal = SLOTS_MEMORY if self.slots > 1 else None
        what = f"{ALONE}, {f'{self.slots} slots' if self.slots > 1 else 'one slot'}"
        self.run.figures.add(f"{what}: memory {when} (Rss)", seen.resident, "MiB", goal=goal)
        self.run.figures.add(f"{what}: of that no other process's, {when}", seen.own, "MiB")


# --- jobs a second ---


def _rate(run: Run, points: Mapping[str, ExecutionPoint]) -> None:
    """Measure the rate of empty jobs that are all queued at the beginning, by their ends in HTCondor's event log."""
    processor: dict[str, float] = {}

    programs: dict[str, dict[str, float]] = {}

    def of(point: ExecutionPoint) -> Measurement:
        count = run.times(JOBS if point.name == K8SPILOT else OTHERS, 40)

        def measurement() -> float:
            before = Used.by(point)
            with used() as seen, point.submit(run.image, "now", count=count) as jobs:
                for proc in range(jobs.count):
                    point.succeeded(jobs, proc)
                ends = [event.seen for event in jobs.events if event.kind == "JobTerminatedEvent"]
            after = Used.by(point)
            programs[point.name] = {part: seconds / jobs.count for part, seconds in seen.items()}
            processor[point.name] = (after.seconds - before.seconds + after.node - before.node) / jobs.count
            return rate(ends)

        return measurement

    found = run.in_turn({name: of(point) for name, point in points.items()}, 1)
    run.compare(f"0 s jobs on {SLOTS} slots", found, "jobs/s", {K8SPILOT: SLOTS_RATE})
    what = f"processor for a 0 s job of {SLOTS} at a time"
    cost = {name: [processor[name]] for name in found}
    run.compare(f"{what}, HTCondor and who starts its containers", cost, "s")
    for name in found:
        for part, seconds in sorted(programs[name].items(), key=lambda one: -one[1]):
            if seconds >= LEAST_SECONDS:
                run.figures.add(f"{what}: {name}: {part}", seconds, "s")


def rate(ends: list[float]) -> float:
    """Return the jobs a second, from the end of the eighth job to the last end."""
    counted = sorted(ends)[SLOTS - 1 :]
    return (len(counted) - 1) / (counted[-1] - counted[0])


# --- eight jobs at one moment ---


@dataclass
class Wave:
    """Seconds until eight jobs run: eight that begin together, and eight that follow eight simultaneous ends."""

    submitted: list[float] = field(default_factory=list)
    """Seconds from before condor_submit to the first instruction of the eighth job."""
    begun: list[float] = field(default_factory=list)
    """Seconds from the begin of the first starter to the first instruction of the eighth job."""
    followed: list[float] = field(default_factory=list)
    """Seconds from the end of the first eight jobs to the first instruction of the sixteenth."""

    def add(self, submitted: float, first_begin: float, job_times: list[dict[str, float]]) -> None:
        """Add the values of a round: the times of all sixteen jobs."""
        first, second = halves(job_times)
        self.submitted.append(first[-1]["start"] - submitted)
        self.begun.append(first[-1]["start"] - first_begin)
        self.followed.append(second[-1]["start"] - max(one["end"] for one in first))


def halves(job_times: list[dict[str, float]]) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return the first eight of sixteen jobs, and the others, each in the order in which they began."""
    ordered = sorted(job_times, key=lambda one: one["start"])
    return ordered[:SLOTS], ordered[SLOTS:]


class _Late(LabError):
    """Raised when jobs had not begun at the moment until which they were to sleep."""


class _Waves:
    """Measurement with sixteen jobs that sleep until one moment and some seconds more: the first eight end together."""

    def __init__(self, run: Run, point: ExecutionPoint, memory: Memory | None) -> None:
        self._run = run
        self._point = point
        self._memory = memory
        """Measurement of memory to make once while eight jobs run; None: none."""
        self._lead = LEAD_SECONDS
        self.found = Wave()

    def measure(self) -> list[float]:
        """Run one round; repeat it with more time if the jobs began too late. Raises LabError."""
        for _ in range(_TRIES):
            try:
                self._once()
            except _Late as late:
                say(f"{late}; once more with more time")
                self._lead *= 2
            else:
                return []
        raise LabError(f"eight jobs do not run after {self._lead} s ({self._point.name})")

    def _once(self) -> None:
        point, submitted = self._point, time.time()
        until = round(submitted) + self._lead
        with point.submit(self._run.image, f"sleep {1000 * REST_SECONDS} 0 {until}", count=2 * SLOTS) as jobs:
            if self._memory is not None:
                for proc in range(SLOTS):
                    jobs.wait("ExecuteEvent", proc=proc)
                self._memory.look(f"with {SLOTS} jobs")
                self._memory = None
            job_times = point.collect(jobs)
        if late := [one for one in halves(job_times)[0] if one["start"] > until]:
            raise _Late(f"{len(late)} of {SLOTS} jobs ({point.name}) had not begun after {self._lead} s")
        begins = [one["up"] for one in point.marks(jobs.cluster).values()]
        self.found.add(submitted, min(begins), job_times)


def _waves(run: Run, points: Mapping[str, ExecutionPoint], memory: Memory) -> None:
    waves = {name: _Waves(run, point, memory if point is memory.point else None) for name, point in points.items()}
    kept = run.in_turn({name: one.measure for name, one in waves.items()}, run.times(WAVES, 1))
    found = {name: waves[name].found for name in kept}
    what = f"{SLOTS} jobs at once"
    run.compare(f"{what}: submitted -> all run", {name: one.submitted for name, one in found.items()}, "s")
    run.compare(f"{what}: first starter begins -> all run", {name: one.begun for name, one in found.items()}, "s")
    followed = {name: one.followed for name, one in found.items()}
    run.compare(f"{SLOTS} jobs end at once -> the next {SLOTS} run", followed, "s")
    pictures.bars(run.picture("slots"), f"{SLOTS} jobs end at once: until the next {SLOTS} run", "s", followed)


# --- an isolated job ---


def _starts(run: Run, requests: Requests) -> None:
    """Measure the start of one job on pilots in the idle image: one with eight payload containers, and one with one."""
    one = run.k8spilot
    Memory(run, one, 1).look("idle")

    def with_several() -> float:
        cluster, job_times = requests.isolated()
        return job_times[0]["start"] - requests.point.starts(cluster)[0]

    def with_one() -> float:
        rest(one)
        cluster, job_times = one.run(run.image)
        return job_times[0]["start"] - one.starts(cluster)[0]

    contestants = {f"pilot with {SLOTS} slots": with_several, "pilot with one slot": with_one}
    found = in_turn(contestants, run.times(STARTS, 4))
    (ours, several), (name, single) = found.items()
    what = "isolated job, starter begins -> first instruction"
    first = run.figures.add(f"{what}: {ours}", several, "s")
    second = run.figures.add(f"{what}: {name}", single, "s", ours=first)
    run.figures.add(f"{what}: {SLOTS} slots later than one", first.value - second.value, "s", goal=SLOTS_START)
    Memory(run, one, 1).look("after jobs")
