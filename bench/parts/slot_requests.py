"""API requests of a pilot that resizes its several payload containers for its jobs."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from bench import api_server
from bench.execution_points import PATIENCE_S, ExecutionPoint
from bench.goals import SLOTS_REQUESTS
from bench.run import Run
from k8spilot.kube.pod import container
from k8spilot.model.reference import Reference
from k8spilot.settings import PILOT
from lab.errors import LabError

ROUNDS = 2
IN_A_ROW = 3
"""Jobs in a row in a round, beside the first one."""
ISOLATED, RETURN = "isolated job", "return to the idle image"
SAME, SMALLER = "job after one of its size", "job after a larger one"
_SMALL = {"request_memory": "128M"}
_LARGE = {"request_memory": "256M", "request_cpus": "8"}
"""Submit commands of jobs that run one after another, because each requests all CPUs."""
_REST_SECONDS = 60.0
_IDLE_AFTER_SECONDS = 4.5
"""Time after a job's end in which its container has certainly not returned to the idle image."""
_TRIES = 3


@dataclass(frozen=True)
class Asked:
    """Counts of requests so far."""

    served: int
    """Requests of all service accounts, by the API server's count."""
    own: int
    """Requests of the pilot, by its own count."""

    @classmethod
    def by(cls, point: ExecutionPoint) -> "Asked":
        """Return the present counts. Raises LabError."""
        flows = api_server.counters(point.lab).flows
        return cls(flows[api_server.SERVICE_ACCOUNTS], api_server.of_pilot(point.lab, point.pod))


@dataclass
class Kind:
    """Requests for one kind of job: a value for each round."""

    served: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)

    def add(self, before: Asked, after: Asked, jobs: int = 1) -> None:
        """Add the values of a round."""
        self.served.append((after.served - before.served) / jobs)
        self.own.append((after.own - before.own) / jobs)


class Requests:
    """Requests for three kinds of jobs: an isolated one, one after another of its size, and one after a larger one."""

    def __init__(self, run: Run, point: ExecutionPoint) -> None:
        self._run = run
        self.point = point
        self._ended: Asked | None = None
        """Counts at the end of the last isolated job, whose container has not returned to the idle image yet."""
        self.kinds = {name: Kind() for name in (ISOLATED, RETURN, SAME, SMALLER)}

    def isolated(self) -> tuple[int, list[dict[str, float]]]:
        """Run an isolated job, as `ExecutionPoint.run`. Raises LabError."""
        rest(self.point)
        before = Asked.by(self.point)
        if self._ended is not None:
            self.kinds[RETURN].add(self._ended, before)
        found = self.point.run(self._run.image)
        self._ended = Asked.by(self.point)
        self.kinds[ISOLATED].add(before, self._ended)
        return found

    def others(self) -> None:
        """Run jobs of one claim, and after them a smaller one, which gets the container before that is resized."""
        for _ in range(self._run.times(ROUNDS, 1)):
            for _ in range(_TRIES):
                rest(self.point)
                if self._row():
                    break
            else:
                raise LabError(f"in {_TRIES} tries no job began within {_IDLE_AFTER_SECONDS} s of the end of another")

    def _row(self) -> bool:
        """Run one round; return whether the smaller job began in time."""
        point = self.point
        with point.submit(self._run.image, "sleep 1500", count=IN_A_ROW + 1, commands=_LARGE) as jobs:
            jobs.wait("ExecuteEvent", timeout=PATIENCE_S)
            first = Asked.by(point)
            for proc in range(jobs.count):
                point.succeeded(jobs, proc)
            last = Asked.by(point)
            _, (smaller,) = point.run(self._run.image, commands=_SMALL)
            after = Asked.by(point)
            ended = max(one["end"] for one in point.collect(jobs))
        if smaller["start"] - ended >= _IDLE_AFTER_SECONDS:
            return False
        self.kinds[SAME].add(first, last, IN_A_ROW)
        self.kinds[SMALLER].add(last, after)
        return True

    def tell(self) -> None:
        """Add the figures."""
        for name, kind in self.kinds.items():
            goal = None if name == RETURN else SLOTS_REQUESTS
            if any(kind.served):
                words = f"API requests, {name}, service accounts', by the API server's count"
                self._run.figures.add(words, kind.served, "", goal=goal)
            if kind.own:
                self._run.figures.add(f"API requests, {name}, by the pilot's count", kind.own, "")


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
    # The status has any name of the same image.
    return all(view.running and _same(view.image, pilot.wanted) and _same(view.wanted, pilot.wanted) for view in views)


def _same(image: str, other: str) -> bool:
    return Reference.parse(image).repository == Reference.parse(other).repository
