"""One simulation: a demand curve, a cluster, a pool, and the provisioner that makes the pilots."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from bench.provisioning.clock import Clock
from bench.provisioning.cluster import Cluster
from bench.provisioning.demand import Curve, Job
from bench.provisioning.pods import Phase, Pod, Shape
from bench.provisioning.pool import CYCLE_SECONDS, Key, Life, Pool
from lab.pilot_samples import Sample

SAMPLE_SECONDS = 300.0
LONGEST_SECONDS = 4 * 24 * 3600.0
"""Time after which a simulation has failed, because its jobs do not end."""


class Endless(Exception):
    """Raised when jobs wait for ever."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The state of pool and cluster that a provisioner reads."""

    now: float
    idle: Mapping[Key, int]
    """Numbers of idle jobs by user and size."""
    running: int
    pods: Sequence[Pod]
    """Pods whose objects exist, the ended ones among them."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The pods that a provisioner creates and deletes."""

    create: Sequence[Shape] = ()
    delete: Sequence[Pod] = ()


class Provisioner(Protocol):
    """A contestant."""

    interval: float
    """Seconds from one turn to the next."""
    life: Life
    """Lifetime of its pilots."""

    def turn(self, sight: Sight) -> Orders:
        """Decide which pods to create and to delete."""
        ...


@dataclass(slots=True)
class Result:
    """Jobs, pods and samples of a simulation."""

    jobs: Sequence[Job]
    pods: list[Pod] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


class World:
    """A simulation."""

    def __init__(self, curve: Curve, provisioner: Provisioner, seed: int) -> None:
        self._provisioner = provisioner
        self._clock = Clock()
        self._pool = Pool(self._clock, provisioner.life, self._end)
        self._cluster = Cluster(self._clock, curve.outages, seed, self._pool.join)
        self._left = len(curve.jobs)
        self._objects: dict[Pod, None] = {}
        self._numbers = itertools.count()
        self.result = Result(curve.jobs)
        for job in curve.jobs:
            self._clock.at(job.submitted, partial(self._pool.submit, job))
            if job.removal is not None:
                self._clock.at(job.removal, partial(self._pool.remove, job))
        self._clock.at(0, self._turn)
        self._clock.at(CYCLE_SECONDS / 2, self._negotiate)
        self._clock.at(0, self._sample)

    def run(self) -> Result:
        """Let time pass until all jobs and all pods have ended.

        Raises Endless: they do not end.
        """
        while not self._is_over() and self._clock.step():
            if self._clock.now > LONGEST_SECONDS:
                raise Endless(f"{sum(not job.is_over for job in self.result.jobs)} jobs are not over")
        return self.result

    def _is_over(self) -> bool:
        while self._left and self.result.jobs[self._left - 1].is_over:
            self._left -= 1
        return not self._left and all(pod.phase is Phase.ENDED for pod in self._objects)

    def _turn(self) -> None:
        sight = Sight(self._clock.now, self._pool.idle, self._pool.running, list(self._objects))
        orders = self._provisioner.turn(sight)
        for pod in orders.delete:
            del self._objects[pod]
            if pod.phase is not Phase.ENDED:
                self._cluster.end(pod)
        for shape in orders.create:
            pod = Pod(next(self._numbers), shape, self._clock.now)
            self.result.pods.append(pod)
            self._objects[pod] = None
            self._cluster.create(pod)
        self._clock.at(self._clock.now + self._provisioner.interval, self._turn)

    def _negotiate(self) -> None:
        self._pool.negotiate()
        self._clock.at(self._clock.now + CYCLE_SECONDS, self._negotiate)

    def _end(self, pod: Pod) -> None:
        self._cluster.end(pod)

    def _sample(self) -> None:
        alive = [pod for pod in self._objects if pod.phase is not Phase.ENDED]
        in_pool = [pod for pod in alive if pod.phase is Phase.IN_POOL]
        busy = sum(pod.claims > 0 for pod in in_pool)
        self.result.samples.append(
            Sample(
                self._clock.now,
                sum(self._pool.idle.values()),
                self._pool.running,
                len(alive) - len(in_pool),
                len(in_pool) - busy,
                busy,
            )
        )
        self._clock.at(self._clock.now + SAMPLE_SECONDS, self._sample)
