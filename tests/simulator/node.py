"""The node of the simulated kubelets: timing, pull failures, folders, and what the kubelets of a pod share."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulator.images import Images
from tests.simulator.programs import Programs

if TYPE_CHECKING:
    from tests.simulator.kubelet import Kubelet


@dataclass(frozen=True)
class Timing:
    """Seconds; a real node's in brackets."""

    relist: float = 0.06
    """Between looks at the runtime [1.0]."""
    status: float = 0.025
    """From a change to the pod's status that shows it [0.07]."""
    pull_error: float = 0.05
    """Until a failed pull shows [0.6]."""
    pull_again: float = 0.3
    """Between tries to pull [10 and more]."""
    back_off: float = 15.0
    """For a reference that was used before [10 and more]: long enough that no test can overlook it."""
    grace: float = 60.0
    """The pod's terminationGracePeriodSeconds."""


@dataclass
class Failure:
    """Why pulls fail, as the runtime says it."""

    words: str
    reason: str
    left: int
    """Number of pulls that are still to fail."""


@dataclass(frozen=True)
class Volumes:
    """Folders of this machine that stand for the pod's volumes."""

    exchange: Path
    execute: Path
    tmp: Path
    var_tmp: Path

    def mounts(self, part: str = "") -> Iterator[str]:
        """As the payload container has them (manifests/pilot-pod.yaml); one of several has a `part` of each."""
        yield f"{self.exchange / part}:/k8spilot:ro"
        yield f"{self.execute / part}:{Path('/var/lib/condor/execute') / part}"
        yield f"{self.tmp / part}:/tmp"
        yield f"{self.var_tmp / part}:/var/tmp"


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True)
class Node:
    """Parts that the kubelets of a pod's payload containers share."""

    images: Images
    programs: Programs
    volumes: Volumes
    folder: Path
    """Of its containers."""
    timing: Timing
    kubelets: list["Kubelet"] = field(default_factory=list)
    """Kubelets of the pod: one for each payload container."""
    quiet: asyncio.Event = field(default_factory=_set)
    """Set while nothing is pulled for long: a kubelet that pulls publishes no status of the pod."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one that changes something: a kubelet changes one thing of a pod at a time, pulls included."""
