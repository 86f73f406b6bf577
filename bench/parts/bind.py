"""Part `bind`, the engine alone: the time of a bind beside the floor, and the delay until the end of a job is known."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from bench import pictures
from bench.engines import Inside, first_instruction, log, of_dockerd, of_pilot, told
from bench.execution_points import DOCKER, K8SPILOT
from bench.failures import contained
from bench.floor import CONFINED, FLOOR, Floor, floor
from bench.goals import BIND, TOLD, TOLD_TAIL, Goal
from bench.images import forget_fresh, fresh
from bench.run import Run
from bench.statistics import Measurement, tail
from lab.errors import LabError

APART_SECONDS = 1.5
"""The pause before each change. The kubelet makes one change of a pod a second; the wait for it is not measured."""
DOCKERD = "dockerd"
_CHANGED = re.compile(r"runs \S+ ([0-9.]+) s after the change")
_LINE_S = 5.0
"""Time limit for the engine's log line about a bind, which may come after its answer."""


def measure(run: Run) -> None:
    """Measure binds with and without the image on the node, the delay of the exit, and dockerd by the same requests."""
    name = run.pod("engine")
    with of_pilot(run.lab, name) as engine:
        engine.bind(run.image)
        with ExitStack() as more:
            floors: dict[str, Floor] = {}
            for which, pod in ((FLOOR, "floor"), (CONFINED, "confined")):
                with contained(partial(run.lose, which)):
                    bare = floor(run.lab, run.pod(pod), run.image, confined=which == CONFINED)
                    floors[which] = more.enter_context(bare)
            beside = _Beside(run, name, engine, floors)
            _warm(run, beside)
            _cold(run, beside)
        with ExitStack() as more:
            engines = {K8SPILOT: engine}
            if DOCKER not in run.without:
                with contained(partial(run.lose, DOCKERD)):
                    docker = more.enter_context(of_dockerd(run.lab))
                    docker.job(run.image)
                    engines[DOCKERD] = docker
            _through_the_engine(run, engines)


class _Beside:
    """Measurement of k8spilot beside the floors, with the same pause before each change."""

    def __init__(self, run: Run, pod: str, engine: Inside, floors: Mapping[str, Floor]) -> None:
        self._run = run
        self._pod = pod
        self._engine = engine
        self._floors = floors
        self.clients: list[float] = []
        """Seconds that k8spilot's client waited for each bind."""

    def measure(self, image: Callable[[], str], rounds: int) -> dict[str, list[float]]:
        """Return the seconds of each change to the image that `image` gives, in turn."""
        self.clients = []

        def change(bare: Floor) -> float:
            wanted = image()
            time.sleep(APART_SECONDS)
            return bare.change(wanted)

        contestants: dict[str, Measurement] = {K8SPILOT: lambda: self._bind(image())}
        contestants |= {which: partial(change, bare) for which, bare in self._floors.items()}
        return self._run.in_turn(contestants, rounds)

    def _bind(self, image: str) -> float:
        """Bind; return the seconds in the engine's log. Wait for that line: the last one may be an earlier bind's."""
        before = len(self._binds())
        time.sleep(APART_SECONDS)
        self.clients.append(self._engine.bind(image))
        deadline = time.monotonic() + _LINE_S
        while len(found := self._binds()) <= before:
            if time.monotonic() > deadline:
                raise LabError(
                    f"the engine of pod {self._pod} has not said within {_LINE_S:.0f} s how long a bind took"
                )
            time.sleep(0.1)
        return found[before]

    def _binds(self) -> list[float]:
        return [float(seconds) for seconds in _CHANGED.findall(log(self._run.lab, self._pod))]


def _warm(run: Run, beside: _Beside) -> None:
    """Measure changes with the image on the node: those of the bare pods' sidecar and binds, in turn."""
    found = beside.measure(lambda: run.image, run.times(18, 5))
    _compare(run, "image on the node", found, beside.clients, BIND)
    pictures.distributions(run.picture("bind"), "A change of image, from the PATCH on", "s", found)


def _cold(run: Run, beside: _Beside) -> None:
    """Measure changes with an image of 32 MiB that the node does not have."""
    forget_fresh(run.lab)
    try:
        found = beside.measure(lambda: fresh(run.lab), run.times(4, 1))
    finally:
        forget_fresh(run.lab)
    _compare(run, "image of 32 MiB not on the node", found, beside.clients)


def _compare(
    run: Run, what: str, found: Mapping[str, Sequence[float]], clients: Sequence[float], goal: Goal | None = None
) -> None:
    add = run.figures.add
    least = add(f"{what}: {FLOOR} to running", found[FLOOR], "s") if FLOOR in found else None
    bind = add(f"{what}: bind, PATCH to payload-init ready", found[K8SPILOT], "s", floor=least, goal=goal)
    if CONFINED in found:
        add(f"{what}: {CONFINED} to running", found[CONFINED], "s", ours=bind)
    add(f"{what}: bind, as docker's client waits for create", clients, "s", floor=least)


def _through_the_engine(run: Run, engines: dict[str, Inside]) -> None:
    """Measure by a client of Docker's API: pull to the first instruction, and the last output to the end of wait."""
    moments: dict[str, list[dict[str, float]]] = {name: [] for name in engines}

    def of(name: str) -> Measurement:
        def measurement() -> list[float]:
            time.sleep(APART_SECONDS)
            moments[name].append(engines[name].job(run.image))
            return []

        return measurement

    kept = run.in_turn({name: of(name) for name in engines}, run.times(40, 10))
    seen = {name: moments[name] for name in kept}
    began = {name: [value for one in some for value in first_instruction(one)] for name, some in seen.items()}
    ended = {name: [value for one in some for value in told(one)] for name, some in seen.items()}
    run.compare("asked for -> first instruction", began, "s")
    run.compare("payload's exit -> end of docker wait", ended, "ms", {K8SPILOT: TOLD})
    words, worst = tail(ended[K8SPILOT])
    run.figures.add(f"payload's exit -> end of docker wait, {words}: {K8SPILOT}", worst, "ms", goal=TOLD_TAIL)
    pictures.distributions(run.picture("told"), "From the payload's last word to the end of docker wait", "ms", ended)
