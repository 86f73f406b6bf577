"""The cluster: nodes with a bounded capacity, a scheduler, and pods that take their time to start."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.provisioning.clock import Clock
from bench.provisioning.demand import Outage, Size
from bench.provisioning.pods import Phase, Pod

NODES = 16
NODE = Size(16, 16 * 4096)
START_MEDIAN, START_SPREAD = 25.0, 0.4
"""Seconds from a node to the pool, for a pod whose image is there: median and spread of a log-normal distribution."""
PULL_MEDIAN, PULL_SPREAD = 45.0, 0.4
"""Seconds of the first pull on a node: median and spread of a log-normal distribution."""
CONTAINER_PART = 0.5
"""Part of the start after which the container runs. The rest is the pilot's own."""
PULL_FAILS_SECONDS = 5.0
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 10.0, 300.0
"""Pauses of the kubelet between pulls that fail; each is twice as long."""


@dataclass(slots=True)
class _Node:
    cpus: int = NODE.cpus
    """CPUs that no pod has."""
    memory: int = NODE.memory
    image_at: float | None = None
    """Time at which its first pull is over; None before the pull has begun."""


class Cluster:
    """Nodes and the pods on them."""

    def __init__(self, clock: Clock, outages: Sequence[Outage], seed: int, join: Callable[[Pod], None]) -> None:
        """Make the nodes; `join` is called with each pod whose pilot comes into the pool."""
        self._clock = clock
        self._outages = outages
        self._seed = seed
        self._join = join
        self._nodes = [_Node() for _ in range(NODES)]
        self._waiting: dict[Pod, None] = {}
        for outage in outages:
            clock.at(outage.end, self._schedule)

    def create(self, pod: Pod) -> None:
        """Take a new pod."""
        self._waiting[pod] = None
        self._schedule()

    def end(self, pod: Pod) -> None:
        """End a pod, whatever its phase."""
        pod.phase, pod.ended = Phase.ENDED, self._clock.now
        self._waiting.pop(pod, None)
        if pod.scheduled is not None:
            node = self._nodes[pod.node]
            node.cpus += pod.shape.size.cpus
            node.memory += pod.shape.size.memory
            self._schedule()

    def _schedule(self) -> None:
        """Give nodes to the pods that wait, the oldest first; the emptiest node that fits."""
        is_full = any(outage.holds(self._clock.now) for outage in self._outages if not outage.cpus)
        too_large: set[Size] = set()
        for pod in list(self._waiting):
            size = pod.shape.size
            place = -1 if is_full or size in too_large else self._node_for(size)
            if place < 0:
                too_large.add(size)
                pod.trouble = "Unschedulable: no node has room"
                continue
            del self._waiting[pod]
            node = self._nodes[place]
            node.cpus -= size.cpus
            node.memory -= size.memory
            pod.node, pod.scheduled, pod.phase, pod.trouble = place, self._clock.now, Phase.PULLING, ""
            self._pull(pod, 0)

    def _node_for(self, size: Size) -> int:
        fits = [
            place for place, node in enumerate(self._nodes) if size.cpus <= node.cpus and size.memory <= node.memory
        ]
        return max(fits, key=lambda place: self._nodes[place].cpus, default=-1)

    def _pull(self, pod: Pod, failures: int) -> None:
        now = self._clock.now
        if pod.phase is not Phase.PULLING:
            return
        if any(outage.holds(now) and outage.cpus == pod.shape.size.cpus for outage in self._outages):
            pause = min(RETRY_SECONDS * 2**failures, LONGEST_RETRY_SECONDS)
            self._clock.at(now + PULL_FAILS_SECONDS, lambda: self._complain(pod))
            self._clock.at(now + PULL_FAILS_SECONDS + pause, lambda: self._pull(pod, failures + 1))
            return
        pod.trouble = ""
        rng = np.random.default_rng([self._seed, 0, pod.number])
        start = float(rng.lognormal(math.log(START_MEDIAN), START_SPREAD))
        pull = float(rng.lognormal(math.log(PULL_MEDIAN), PULL_SPREAD))
        node = self._nodes[pod.node]
        node.image_at = now + pull if node.image_at is None else node.image_at
        begin = max(now, node.image_at) + start * CONTAINER_PART
        self._clock.at(begin, lambda: self._start(pod, start * (1 - CONTAINER_PART)))

    def _complain(self, pod: Pod) -> None:
        if pod.phase is Phase.PULLING:
            pod.trouble = "the container pilot waits: ImagePullBackOff"

    def _start(self, pod: Pod, seconds: float) -> None:
        if pod.phase is Phase.PULLING:
            pod.phase, pod.started = Phase.STARTING, self._clock.now
            self._clock.at(self._clock.now + seconds, lambda: self._reach(pod))

    def _reach(self, pod: Pod) -> None:
        if pod.phase is Phase.STARTING:
            self._join(pod)
