"""One run of the benchmark: the lab, the figures and the execution points that the parts share."""

import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench import execution_points, images
from bench.before import before
from bench.execution_points import (
    APPTAINER,
    BEFORE,
    DOCKER,
    K8SPILOT,
    RELISTING,
    REUSING,
    VARIANTS,
    ExecutionPoint,
)
from bench.failures import contained, into
from bench.figures import Figures, say
from bench.goals import Goal
from bench.statistics import Measurement, in_turn
from lab import dockerd
from lab.api import Lab
from lab.processes import Daemons

type _Make = Callable[[Lab, str, int], AbstractContextManager[ExecutionPoint]]
_MAKE: Final[Mapping[str, tuple[str, _Make]]] = {
    K8SPILOT: ("k8spilot", execution_points.k8spilot),
    REUSING: ("reusing", execution_points.reusing),
    RELISTING: ("relisting", execution_points.relisting),
    DOCKER: ("docker", execution_points.docker_universe),
    APPTAINER: ("apptainer", execution_points.apptainer),
}


@dataclass
class Run:
    """The lab, the figures so far, and the execution points, which are made when they are first asked for."""

    lab: Lab
    figures: Figures
    quick: bool
    pictures: Path
    """The folder for pictures."""
    without: Collection[str] = ()
    """Contestants that are left out."""
    before: str = ""
    """The commit whose pilot is one of the contestants; empty if none is."""
    lost: list[str] = field(default_factory=list)
    """Measurements that failed, each with its part."""
    _points: dict[tuple[str, int], tuple[ExitStack, ExecutionPoint]] = field(default_factory=dict)
    """Execution points that were deployed, by name and number of slots."""
    _absent: set[tuple[str, int]] = field(default_factory=set)
    _image: str = ""
    _had_dockerd: bool = False

    def __post_init__(self) -> None:
        self._had_dockerd = Daemons(self.lab.settings).find(dockerd.NAME) is not None

    def times(self, full: int, quick: int) -> int:
        """Return the number of repetitions: `full` in a full run, `quick` in a quick one."""
        return quick if self.quick else full

    def pod(self, name: str) -> str:
        """Return a pod's name for this run; checkouts that share a lab set K8SPILOT_TEST_PREFIX."""
        return f"{os.environ.get('K8SPILOT_TEST_PREFIX', '')}bench-{name}"

    @property
    def image(self) -> str:
        """Reference of the jobs' image, which the node pulls with the first job."""
        self._image = self._image or images.ensure(self.lab)
        return self._image

    def picture(self, name: str) -> Path:
        """Return the path of a picture."""
        return self.pictures / f"{name}.svg"

    # --- execution points ---

    @property
    def k8spilot(self) -> ExecutionPoint:
        """The pilot. Raises LabError."""
        point = self.point(K8SPILOT)
        assert point is not None
        return point

    def point(self, name: str, slots: int = 1) -> ExecutionPoint | None:
        """Return one execution point, or None if this run has none of that name, or it is unavailable (printed once).

        Args:
            name: the contestant.
            slots: how many jobs it runs at a time.
        """
        key = name, slots
        if name in self.without or name not in self._contestants or key in self._absent:
            return None
        if key not in self._points:
            short, make = self._contestants[name]
            with contained(partial(self.lose, name)), ExitStack() as stack:
                pod = self.pod(short if slots == 1 else f"{short}-{slots}")
                point = stack.enter_context(make(self.lab, pod, slots))
                # The image is on the node then, and HTCondor's daemons have opened what they need.
                point.run(self.image, count=max(2, slots))
                self._points[key] = stack.pop_all(), point
        if key not in self._points:
            self._absent.add(key)
            return None
        return self._points[key][1]

    def points(self, slots: int = 1) -> dict[str, ExecutionPoint]:
        """Return all available execution points with this number of slots; each job has a container of its own.

        The pilot of an earlier commit is one of them if there is one slot.
        """
        names = [name for name in self._contestants if name not in VARIANTS and (slots == 1 or name != BEFORE)]
        found = {name: self.point(name, slots) for name in names}
        return {name: point for name, point in found.items() if point is not None}

    @property
    def _contestants(self) -> dict[str, tuple[str, _Make]]:
        """Pods' names and functions of deployment of the contestants."""
        # The earlier commit first: each deployment applies its commit's rights of the pilots' account.
        return {**({BEFORE: ("before", partial(before, self.before))} if self.before else {}), **_MAKE}

    def forget(self, *names: str) -> None:
        """Remove some contestants' execution points, or all. The next request for one makes a new one."""
        for key in [one for one in self._points if not names or one[0] in names]:
            stack, _ = self._points.pop(key)
            with contained(into(self.lost, f"{key[0]} could not be taken away")):
                stack.close()

    def close(self) -> None:
        """Remove everything that this run has deployed."""
        self.forget()
        if not self._had_dockerd:
            dockerd.stop(self.lab.settings)

    def clear_queue(self) -> None:
        """Remove jobs for pods of this name: jobs of a killed run would run in this run's pods."""
        words = f'regexp("K8SPodName == .{self.pod("")}", unparse(Requirements))'
        self.lab.access_point("alice", f"condor_rm -constraint {shlex.quote(words)} >/dev/null 2>&1; true")

    # --- contestants, of which any but k8spilot may fail ---

    def lose(self, name: str, error: Exception) -> None:
        """Go on without a contestant that failed. A failure of k8spilot is the part's failure, and is raised."""
        if name == K8SPILOT:
            raise error
        into(self.lost, f"{self.figures.part}: {name}")(error)
        say(f"without {name} from here on")
        self.forget(name)

    def each[T](self, points: dict[str, ExecutionPoint], ask: Callable[[ExecutionPoint], T]) -> dict[str, T]:
        """Call `ask` for each; those that fail are dropped from `points`."""
        found = {}
        for name in list(points):
            with contained(partial(self.lose, name)):
                found[name] = ask(points[name])
            if name not in found:
                del points[name]
        return found

    def in_turn(self, contestants: Mapping[str, Measurement], rounds: int) -> dict[str, list[float]]:
        """Measure each once a round, in changing order; return the values of those that have not failed."""
        return in_turn(contestants, rounds, self.lose)

    def compare(
        self,
        what: str,
        found: Mapping[str, Sequence[float]],
        unit: str,
        goals: Mapping[str, Goal] | None = None,
        own: str = K8SPILOT,
    ) -> None:
        """Add a figure for the contestant `own`, then one for each other with the ratio of the former to it."""
        goals = goals or {}
        ours = self.figures.add(f"{what}: {own}", found[own], unit, goal=goals.get(own))
        for name, samples in found.items():
            if name != own and samples:
                self.figures.add(f"{what}: {name}", samples, unit, ours=ours, goal=goals.get(name))
