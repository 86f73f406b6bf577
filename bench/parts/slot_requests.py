"""API requests of a pilot with several payload containers, which resizes them for its jobs."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from bench import api_server
from bench.execution_points import ExecutionPoint
from bench.goals import SLOTS_REQUESTS
from bench.run import Run
from k8spilot.kube.pod import container
from k8spilot.model.reference import Reference
from k8spilot.settings import PILOT
from lab.errors import LabError

ROUNDS = 3
IN_A_ROW = 4
"""Jobs in a row in a round, without the first one."""
SMALL, LARGE = {"request_memory": "128M"}, {"request_memory": "256M"}
_WHOLE = {**SMALL, "request_cpus": "8"}
"""Submit commands of jobs that run one after another, because each has all CPUs."""
_REST_SECONDS = 60.0
_IDLE_AFTER_SECONDS = 4.5
"""In this time after a job's end its container has not returned to the idle image for certain."""
_TRIES = 3


@dataclass(frozen=True)
class Asked:
    """Requests so far."""

    served: int
    """Of all service accounts, by the API server's count."""
    own: int
    """Of the pilot, by its own."""

    @classmethod
    def by(cls, point: ExecutionPoint) -> "Asked":
        """The present counts. Raises LabError."""
        flows = api_server.counters(point.lab).flows
        return cls(flows[api_server.SERVICE_ACCOUNTS], api_server.of_pilot(point.lab, point.pod))


@dataclass
class Kind:
    """Requests for one kind of job: a value for each round."""

    served: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)

    def add(self, before: Asked, after: Asked, jobs: int = 1) -> None:
        """One more round."""
        self.served.append((after.served - before.served) / jobs)
        self.own.append((after.own - before.own) / jobs)


def requests(run: Run, point: ExecutionPoint) -> None:
    """For an isolated job, one after another of its size, and one after a larger one."""
    kinds = {"isolated": Kind(), "return to the idle image": Kind(), "after one of its size": Kind()}
    kinds["after a larger one"] = Kind()
    for _ in range(run.times(ROUNDS, 1)):
        _alone(run, point, kinds["isolated"], kinds["return to the idle image"])
        _in_a_row(run, point, kinds["after one of its size"])
        rest(point)
        _smaller(run, point, kinds["after a larger one"])
    add = run.figures.add
    for name, kind in kinds.items():
        goal = None if name.startswith("return") else SLOTS_REQUESTS
        words = f"API requests, {name}" if goal is None else f"API requests a job, {name}"
        if any(kind.served):
            add(f"{words}, service accounts', by the API server's count", kind.served, "", goal=goal)
        add(f"{words}, by the pilot's count", kind.own, "")


def _alone(run: Run, point: ExecutionPoint, job: Kind, idle: Kind) -> None:
    rest(point)
    before = Asked.by(point)
    point.run(run.image)
    ended = Asked.by(point)
    job.add(before, ended)
    rest(point)
    idle.add(ended, Asked.by(point))


def _in_a_row(run: Run, point: ExecutionPoint, kind: Kind) -> None:
    """Jobs of one claim, from the time when the first one runs to the end of the last one."""
    with point.submit(run.image, "sleep 1500", count=IN_A_ROW + 1, commands=_WHOLE) as jobs:
        jobs.wait("ExecuteEvent")
        before = Asked.by(point)
        point.collect(jobs)
        kind.add(before, Asked.by(point), IN_A_ROW)


def _smaller(run: Run, point: ExecutionPoint, kind: Kind) -> None:
    """A job that gets the container of a larger job, before that has become small."""
    for _ in range(_TRIES):
        _, (larger,) = point.run(run.image, commands=LARGE)
        before = Asked.by(point)
        _, (smaller,) = point.run(run.image, commands=SMALL)
        if smaller["start"] - larger["end"] < _IDLE_AFTER_SECONDS:
            kind.add(before, Asked.by(point))
            return
        rest(point)
    raise LabError(f"in {_TRIES} tries no job began within {_IDLE_AFTER_SECONDS} s of the end of the one before it")


def rest(point: ExecutionPoint) -> None:
    """Wait until all payload containers of a pilot run the idle image. Raises LabError."""
    deadline = time.monotonic() + _REST_SECONDS
    while not _rests(json.loads(point.lab.kubectl("get", "pod", point.pod, "-n", point.namespace, "-o", "json"))):
        if time.monotonic() > deadline:
            raise LabError(f"the pod {point.pod} has not returned to the idle image within {_REST_SECONDS:.0f} s")
        time.sleep(0.5)


def _rests(pod: dict[str, Any]) -> bool:
    pilot = container(pod, PILOT)
    assert pilot is not None
    names = [one["name"] for one in pod["spec"]["initContainers"] if one["name"].startswith("payload")]
    views = [view for name in names if (view := container(pod, name)) is not None]
    return all(view.running and view.image == view.wanted and _same(view.wanted, pilot.wanted) for view in views)


def _same(image: str, other: str) -> bool:
    return Reference.parse(image).repository == Reference.parse(other).repository
