"""Part `relist`: empty jobs back to back where the kubelet is asked to look at once (component relist)."""

from statistics import median

from bench import api_server
from bench.execution_points import DOCKER, K8SPILOT, RELISTING, ExecutionPoint
from bench.goals import RELIST_DOCKER, RELIST_NEXT, RELIST_TAIL
from bench.run import Run
from bench.statistics import Measurement, gaps
from bench.used import Used
from lab.errors import LabError

ROUNDS, OURS, OTHERS = 6, 35, 12


def measure(run: Run) -> None:
    """Measure the time from one job's begin to the next one's, and the processor time and API requests of each job."""
    if (ours := run.point(RELISTING)) is None:
        raise LabError("the pilot with the component relist could not be deployed")
    others = {name: point for name in (K8SPILOT, DOCKER) if (point := run.point(name)) is not None}
    points = {RELISTING: ours, **others}
    processor: dict[str, list[float]] = {name: [] for name in points}
    requests: dict[str, list[float]] = {name: [] for name in points}

    def of(point: ExecutionPoint) -> Measurement:
        count = run.times(OURS if point is ours else OTHERS, 6)

        def measurement() -> list[float]:
            before, asked = Used.by(point), api_server.counters(run.lab)
            _, job_times = point.run(run.image, count=count)
            requests[point.name].append(api_server.counters(run.lab).since(asked).about_pods / count)
            processor[point.name].append(Used.by(point).processor_since(before) / count)
            return gaps([one["start"] for one in job_times])

        return measurement

    found = run.in_turn({name: of(point) for name, point in points.items()}, run.times(ROUNDS, 1))
    goals = {RELISTING: RELIST_NEXT, DOCKER: RELIST_DOCKER}
    run.compare("0 s job to the next, with relist", found, "s", goals, RELISTING)
    longest = max(found[RELISTING]) / median(found[RELISTING])
    run.figures.add(f"0 s job to the next: the longest of {len(found[RELISTING])}", longest, "x", goal=RELIST_TAIL)
    what = "processor for a 0 s job with relist, HTCondor and who starts its containers"
    run.compare(what, {name: processor[name] for name in found}, "s", own=RELISTING)
    what = "API requests a job about pods and Events with relist, everybody's, by the API server's count"
    run.compare(what, {name: requests[name] for name in found}, "", own=RELISTING)
