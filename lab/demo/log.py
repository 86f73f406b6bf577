"""The states of the demonstration's jobs that only the pilot's logs show: claimed, bound (and how fast), running."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.api import Lab
from lab.streams import Stream

_CLAIMED = re.compile(r"Remote job ID is (\d+\.\d+)")  # condor_startd
_BOUND = re.compile(r"Bound \S+ in (?P<seconds>[0-9.]+) s\. .*attempt=(?P<attempt>\w+)")  # k8spilot
_RUNS = re.compile(r"HTCJob\d+_\S* runs\. .*attempt=(?P<attempt>\w+) .*job=(?P<job>\S+)")  # k8spilot


@dataclass(frozen=True)
class News:
    """A state that a job has reached."""

    job: str
    """HTCondor's id."""
    state: str
    bind_s: float | None = None


class PilotLog:
    """Follows the log of one pilot container and of HTCondor's startd in it."""

    def __init__(self, lab: Lab, pod: str) -> None:
        self._startd = Stream.of_pilot_files(lab, pod, "/var/log/condor/StartLog")
        self._pilot = Stream.of_pilot(lab, pod)
        self._bind_s: dict[str, float] = {}
        """Seconds of each bind, by the attempt that its log lines name."""

    def look(self) -> Iterator[News]:
        """Return what happened since the last call."""
        for line in self._startd.lines():
            if (match := _CLAIMED.search(line)) is not None:
                yield News(match[1], "claimed")
        for line in self._pilot.lines():
            # The bind of an image that is new to the pod begins with its pull, whose request does not name the job.
            if (match := _BOUND.search(line)) is not None:
                self._bind_s[match["attempt"]] = float(match["seconds"])
            elif (match := _RUNS.search(line)) is not None:
                if (seconds := self._bind_s.pop(match["attempt"], None)) is not None:
                    yield News(match["job"], "bound", seconds)
                yield News(match["job"], "running")

    def close(self) -> None:
        """Stop following."""
        self._startd.close()
        self._pilot.close()
