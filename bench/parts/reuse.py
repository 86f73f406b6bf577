"""Part `reuse`: empty jobs of one claim in one container (K8SPILOT_REUSE), beside the other execution points."""

from bench.execution_points import APPTAINER, DOCKER, REUSING, ExecutionPoint
from bench.goals import (
    REUSE_APPTAINER,
    REUSE_NEXT,
    REUSE_PODS,
    REUSE_PROCESSOR_APPTAINER,
    REUSE_PROCESSOR_DOCKER,
    REUSE_START,
)
from bench.native import POD_PER_JOB, PodPerJob
from bench.run import Run
from bench.statistics import Measurement, gaps
from bench.used import Used
from lab.errors import LabError

ROUNDS, JOBS, PODS = 5, 14, 4


def measure(run: Run) -> None:
    """Measure the time from one job's begin to the next one's, the jobs' starts, and the processor time of each job."""
    if (ours := run.point(REUSING)) is None:
        raise LabError("the pilot that reuses containers could not be deployed")
    points = {REUSING: ours, **run.points()}
    starts: dict[str, list[float]] = {name: [] for name in points}
    processor: dict[str, list[float]] = {name: [] for name in points}
    count = run.times(JOBS, 6)

    def of(point: ExecutionPoint) -> Measurement:
        def measurement() -> list[float]:
            before = Used.by(point)
            cluster, job_times = point.run(run.image, count=count)
            processor[point.name].append(Used.by(point).processor_since(before) / count)
            seen = point.starts(cluster)
            starts[point.name] += [
                one["start"] - seen[proc] for proc, one in enumerate(job_times) if proc in seen and proc
            ]
            return gaps([one["start"] for one in job_times])

        return measurement

    pods = PodPerJob(run.lab, run.pod("reuse-pods"), run.image)
    contestants: dict[str, Measurement] = {name: of(point) for name, point in points.items()}
    contestants[POD_PER_JOB] = lambda: gaps([one["start"] for one in pods.run(PODS)])
    found = run.in_turn(contestants, run.times(ROUNDS, 1))
    goals = {REUSING: REUSE_NEXT, APPTAINER: REUSE_APPTAINER, POD_PER_JOB: REUSE_PODS}
    run.compare("0 s job to the next of its claim", found, "s", goals, REUSING)
    what = "a claim's next job: starter begins -> first instruction"
    run.compare(what, {name: starts[name] for name in found if name in starts}, "s", {REUSING: REUSE_START}, REUSING)
    what = "processor for a 0 s job of a claim, HTCondor and who starts its containers"
    goals = {DOCKER: REUSE_PROCESSOR_DOCKER, APPTAINER: REUSE_PROCESSOR_APPTAINER}
    run.compare(what, {name: processor[name] for name in found if name in processor}, "s", goals, REUSING)
