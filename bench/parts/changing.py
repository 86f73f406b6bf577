"""Part `changing`: empty jobs back to back whose images change from one job to the next."""

from bench import images
from bench.execution_points import DOCKER, RELISTING, ExecutionPoint
from bench.goals import CHANGING_DOCKER
from bench.run import Run
from bench.statistics import Measurement, gaps
from lab.errors import LabError

ROUNDS, JOBS = 4, 14


def measure(run: Run) -> None:
    """Measure from the begin of one job to the begin of the next in one claim; two images on the node take turns."""
    if (ours := run.point(RELISTING)) is None:
        raise LabError("the pilot with the component relist could not be deployed")
    points = {RELISTING: ours, **run.points()}
    pair = (run.image, images.other(run.lab))
    count = run.times(JOBS, 6)

    def of(point: ExecutionPoint) -> Measurement:
        point.run(pair[1])  # the image is on the node then
        names = ", ".join(point.name_of(pair[number % 2]) for number in range(count))
        commands = {"container_image": f"$CHOICE(ProcId, {names})"}
        return lambda: gaps([one["start"] for one in point.run(run.image, count=count, commands=commands)[1]])

    found = run.in_turn({name: of(point) for name, point in points.items()}, run.times(ROUNDS, 1))
    run.compare("0 s job to the next, of another image", found, "s", {DOCKER: CHANGING_DOCKER}, RELISTING)
