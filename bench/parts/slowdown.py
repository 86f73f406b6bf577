"""Part `slowdown`: a payload in a pilot beside one in a plain container, in turns of a tenth of a second."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench import pictures
from bench.execution_points import K8SPILOT, ExecutionPoint
from bench.goals import SLOWDOWN
from bench.job_times import whole
from bench.native import PodPerJob
from bench.run import Run
from lab.errors import LabError

PLAIN = "plain container"
LOADS = {"processor": "cpu", "memory": "memory"}
ROUNDS = 8
"""Pairs of containers. There are several, since a process can be faster or slower for life by the memory that it
gets."""
SECONDS = 6
LEAD_SECONDS = 7
"""Seconds from the request for both until they are to begin together."""
_TRIES = 3
"""Number of tries for a pair. A pair of which one begins late does not count."""


@dataclass(frozen=True)
class Pair:
    """Seconds of the turns of two payloads, by number; one has the even, the other the odd ones. Pure."""

    ours: Mapping[int, float]
    theirs: Mapping[int, float]

    def __post_init__(self) -> None:
        """Check the pair. Raises LabError: the payloads had no turns beside each other."""
        if not self._neighbours:
            raise LabError("a job and a pod that ran at the same time have no turns beside each other")

    @property
    def fastest(self) -> float:
        """Ratio of our fastest turn to theirs. Other work on the machine makes turns slower, and never faster."""
        return min(self.ours.values()) / min(self.theirs.values())

    @property
    def typical(self) -> float:
        """Median ratio of our turns to those next to them."""
        return median(ours / theirs for ours, theirs in self._neighbours)

    @property
    def all(self) -> float:
        """Ratio of the sums of all neighbouring turns, ours to theirs: rare delays are in it, too."""
        return sum(ours for ours, _ in self._neighbours) / sum(theirs for _, theirs in self._neighbours)

    @property
    def _neighbours(self) -> list[tuple[float, float]]:
        near = ((one, other) for one in self.ours for other in (one - 1, one + 1) if other in self.theirs)
        return [(self.ours[one], self.theirs[other]) for one, other in near]


def measure(run: Run) -> None:
    """Measure turn by turn, because the speed of the machine changes from second to second."""
    pods = PodPerJob(run.lab, run.pod("plain"), run.image, _resources(run.k8spilot))
    for load, word in LOADS.items():
        pairs = [_side_by_side(run, pods, word, number % 2) for number in range(run.times(ROUNDS, 1))]
        fastest = {
            PLAIN: [1000 * min(pair.theirs.values()) for pair in pairs],
            K8SPILOT: [1000 * min(pair.ours.values()) for pair in pairs],
        }
        for name, milliseconds in fastest.items():
            run.figures.add(f"{load}-bound payload, fastest of its turns: {name}", milliseconds, "ms")
        what, add = f"{load}-bound payload, k8spilot's to the plain container's", run.figures.add
        add(f"{what}, their fastest turns", [pair.fastest for pair in pairs], "x", goal=SLOWDOWN[load])
        add(f"{what}, neighbouring turns", [pair.typical for pair in pairs], "x")
        add(f"{what}, all turns", [pair.all for pair in pairs], "x")
        pictures.distributions(run.picture(f"slowdown-{load}"), f"A {load}-bound payload, fastest turn", "ms", fastest)


def _side_by_side(run: Run, pods: PodPerJob, word: str, turn: int) -> Pair:
    """Run a job and a pod that begin at the same time; return their turns.

    Both take their memory at the same moment: of two processes on this machine, the one that takes it earlier has the
    slower memory. Raises LabError.
    """
    point, late = run.k8spilot, 0.0
    for _ in range(_TRIES):
        at = int(time.time()) + LEAD_SECONDS
        with point.submit(run.image, f"{word} {SECONDS} {turn} {at}") as jobs:
            theirs = pods.run(1, f"{word} {SECONDS} {1 - turn} {at}")[0]
            point.succeeded(jobs)
            output = jobs.files().get("out.0", b"").decode(errors="replace")
        ours = whole(output, f"job {jobs.cluster}.0")
        if (late := max(ours["start"], theirs["start"]) - at) <= 0:
            return Pair(_turns(ours), _turns(theirs))
    raise LabError(f"a job and a pod that were to begin at the same time did not: one came {late:.1f} s late")


def _turns(job_times: Mapping[str, float]) -> dict[int, float]:
    return {int(word[4:]): seconds for word, seconds in job_times.items() if word.startswith("turn")}


def _resources(point: ExecutionPoint) -> dict[str, Any]:
    """Return the payload container's requests and limits, for the plain container. Raises LabError."""
    pod = json.loads(point.lab.kubectl("get", "pod", point.pod, "-n", point.namespace, "-o", "json"))
    for one in pod["spec"]["initContainers"]:
        if one["name"] == "payload":
            return {kind: one["resources"][kind] for kind in ("requests", "limits")}
    raise LabError(f"the pod {point.pod} has no container `payload`")
