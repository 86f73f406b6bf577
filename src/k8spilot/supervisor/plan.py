"""The plan of the supervisor (supervisor.c); exit statuses, signals and descriptors that others share with it."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from k8spilot.common.files import LIBEXEC

PROGRAM: Final = LIBEXEC / "supervisor"
"""Path of the supervisor in the image."""
GONE: Final = 3
"""Exit status of an engine that has detected the end of its pod: HTCondor should end, too."""
NO_RESTART: Final = 99
"""HTCondor's exit status of a daemon that has ended for good by its own policy (DAEMON_NO_RESTART)."""
TOLD: Final = 128 + signal.SIGTERM
"""Exit status after the kubelet's SIGTERM. A Job counts a pod that ends with 0 as completed, and would create no
other pod after a drain or an eviction (pkg/controller/job/job_controller.go)."""
DONE: Final = signal.SIGHUP
"""Signal by which the engine requests the end, because HTCondor has ended for good. It is ignored while the pilot
ends."""
DEATHS: Final = "K8SPILOT_ENGINE_DEATHS"
"""Environment variable with the number of engines that died before this one in this container."""
EQUAL_SLOTS: Final = "K8SPILOT_EQUAL_SLOTS"
"""Environment variable with the sentence about slots of equal size instead of a partitionable slot (cli/run.py)."""
FACTS: Final = "K8SPILOT_FACTS"
"""Environment variable: attributes of the cluster as JSON, found by the preflight checks."""
REASON_SECONDS: Final = 300.0
"""Age after which a reason of the pilot's end that was only read in a log does not count."""

PLAN: Final = 3
"""Descriptor of the supervisor's plan."""
SOCKETS: Final = 4
"""First descriptor of the engine's sockets, on which all engines listen (Settings.sockets)."""


@dataclass(frozen=True, slots=True)
class Child:
    """A program that runs as long as the pilot."""

    name: str
    """`condor`, or the name of the program in the place of the engine."""
    argv: Sequence[str]
    env: Mapping[str, str]
    sockets: int = 0
    """Number of the sockets that it inherits."""

    def words(self) -> Iterator[str]:
        """Yield the child's part of the plan."""
        env = [f"{name}={value}" for name, value in self.env.items() if name != DEATHS]
        yield from (self.name, str(self.sockets), str(len(self.argv)), *self.argv, str(len(env)), *env)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the supervisor needs to know."""

    children: Sequence[Child]
    sockets: int
    """Number of the engine's sockets."""
    reason: str = ""
    """File with the reason of the end (condor/daemons/end_reason.py); empty where HTCondor does not run."""
    termination_log: str = "/dev/termination-log"
    """File that the kubelet reads after the container's end."""
    most_deaths: int = 20
    """Deaths of the engine within ten minutes that are allowed, at most 255. One more ends the pilot."""
    end_seconds: float = 10.0
    """Seconds for an engine to end."""

    def encode(self) -> bytes:
        """Return the plan as the supervisor reads it: words that each end with a NUL.

        Raises:
            ValueError: a word has a NUL, which would shift all others.
        """
        sizes = len(self.children), self.sockets
        head = (*sizes, self.reason, REASON_SECONDS, self.termination_log, self.most_deaths, self.end_seconds)
        words = [
            os.fsencode(str(word)) for word in (*head, *(word for child in self.children for word in child.words()))
        ]
        if any(b"\0" in word for word in words):
            raise ValueError("an argument or a variable for the engine or for HTCondor has a NUL")
        return b"".join(word + b"\0" for word in words)
