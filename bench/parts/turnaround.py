"""Parts `turnaround`, `reference`, `throughput`, `waterfall`: whole jobs, how fast they follow, and their steps."""

from bench import native, pictures, waterfall
from bench.execution_points import BEFORE, DOCKER, K8SPILOT, RELISTING, REUSING, ExecutionPoint
from bench.goals import NEXT, NEXT_DOCKER, NEXT_PODS, NEXT_REFERENCE
from bench.native import POD_PER_JOB, PodPerJob
from bench.run import Run
from bench.statistics import Measurement, gaps

ROUNDS = 3
OURS, OTHERS, PODS = 34, 12, 4
"""Jobs of one second in a round: of k8spilot, of the other execution points, and of the contestant pod per job.
Through k8spilot, that is a hundred in all."""
SECOND = "sleep 1000"
_SHORT = {K8SPILOT: "k8spilot", RELISTING: "relist", REUSING: "reuse", BEFORE: "before", DOCKER: "docker"}
"""Contestants whose steps are shown, by the names of their pictures."""


def measure(run: Run) -> None:
    """Measure empty jobs, one after another in one claim: from the begin of one to the begin of the next."""
    count, few = run.times(10, 6), run.times(4, 2)
    points = run.points()
    pods = PodPerJob(run.lab, run.pod("pods"), run.image)

    def of(point: ExecutionPoint) -> Measurement:
        return lambda: gaps([one["start"] for one in point.run(run.image, count=count)[1]])

    contestants: dict[str, Measurement] = {name: of(point) for name, point in points.items()}
    contestants[POD_PER_JOB] = lambda: gaps([one["start"] for one in pods.run(few)])
    found = run.in_turn(contestants, run.times(ROUNDS, 1))
    run.compare("0 s job to the next", found, "s", {K8SPILOT: NEXT, DOCKER: NEXT_DOCKER, POD_PER_JOB: NEXT_PODS})
    pictures.distributions(run.picture("turnaround"), "Empty jobs back to back: from one to the next", "s", found)


def reference(run: Run) -> None:
    """Measure the proposal's reference method, which mostly sleeps, and empty jobs through k8spilot, in turn."""
    point = run.k8spilot
    began = []
    with native.reference(run.lab, run.pod("reference"), run.image) as method:

        def theirs() -> float:
            first, whole = method.job()
            began.append(first)
            return whole

        def ours() -> list[float]:
            return gaps([one["start"] for one in point.run(run.image, count=5)[1]])

        found = run.in_turn({K8SPILOT: ours, native.REFERENCE: theirs}, run.times(ROUNDS, 1))
    run.compare("0 s job to the next, beside the reference method", found, "s", {native.REFERENCE: NEXT_REFERENCE})
    if native.REFERENCE in found:
        run.figures.add(f"asked for -> first instruction: {native.REFERENCE}", began, "s")


def throughput(run: Run) -> None:
    """Measure the rate of jobs of one second on one slot, and the time from a starter's begin to the first instruction.

    The kubelet changes a pod at most once a second. That pause is not in the latter: it is over when such a job ends.
    """
    starts: dict[str, list[float]] = {}

    def of(point: ExecutionPoint) -> Measurement:
        count = run.times(OURS if point.name == K8SPILOT else OTHERS, 6)

        def measurement() -> float:
            cluster, job_times = point.run(run.image, SECOND, count=count)
            seen = point.starts(cluster)
            found = [one["start"] - seen[proc] for proc, one in enumerate(job_times) if proc in seen]
            starts.setdefault(point.name, []).extend(found)
            return _per_minute([one["start"] for one in job_times])

        return measurement

    pods = PodPerJob(run.lab, run.pod("seconds"), run.image)

    def of_pods() -> float:
        job_times = pods.run(run.times(PODS, 3), SECOND)
        first = min(one["start"] for one in job_times)
        starts.setdefault(POD_PER_JOB, []).append(first - job_times[0]["asked"])
        return _per_minute([one["start"] for one in job_times])

    contestants: dict[str, Measurement] = {name: of(point) for name, point in run.points().items()}
    contestants[POD_PER_JOB] = of_pods
    found = run.in_turn(contestants, run.times(ROUNDS, 1))
    run.compare("jobs of 1 s on one slot", found, "jobs/min")
    kept = {name: starts[name] for name in found if starts.get(name)}
    run.compare("starter begins (Job asked for) -> first instruction", kept, "s")
    pictures.bars(run.picture("throughput"), "Jobs of one second on one slot", "jobs a minute", found)
    pictures.distributions(run.picture("start"), "From the job's start to its first instruction", "s", kept)


def _per_minute(starts: list[float]) -> float:
    return 60 * (len(starts) - 1) / (max(starts) - min(starts))


def steps(run: Run) -> None:
    """Add a figure for each step of an empty job: medians of jobs in several claims."""
    points = {name: point for name in _SHORT if (point := run.point(name)) is not None}
    seen: dict[str, list[dict[int, dict[str, float]]]] = {name: [] for name in points}

    def of(point: ExecutionPoint) -> Measurement:
        def measurement() -> list[float]:
            cluster, job_times = point.run(run.image, count=run.times(8, 6))
            marks = waterfall.marks(point.starter_log(), cluster)
            for proc, one in enumerate(job_times):
                if proc in marks:
                    marks[proc].update(first=one["start"], last=one["end"])
            seen[point.name].append(marks)
            return []

        return measurement

    for name in run.in_turn({name: of(point) for name, point in points.items()}, run.times(ROUNDS, 1)):
        found = waterfall.steps(seen[name])
        for step in found:
            run.figures.add(f"{name}: {step.name}", step.lasted, "ms")
        if found:
            run.figures.add(f"{name}: sum of the steps' medians", found[-1].end, "ms")
        drawn = [(step.name, step.begin, step.end) for step in found]
        pictures.waterfall(run.picture(f"waterfall-{_SHORT[name]}"), f"An empty job, and the next: {name}", drawn)
