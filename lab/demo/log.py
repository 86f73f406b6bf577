"""The states of the demonstration's jobs that only the pilot's logs show: claimed, bound (and how fast), running."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.api import Lab
from lab.streams import Stream

_CLAIMED = re.compile(r"Remote job ID is (\d+\.\d+)")  # condor_startd
_BOUND = re.compile(r"Bound \S+ in (?P<seconds>[0-9.]+) s\..* job=(?P<job>\d+\.\d+)")  # k8spilot
_RUNS = re.compile(r"HTCJob(?P<cluster>\d+)_(?P<proc>\d+)_\S* runs\.")  # k8spilot; the name is HTCondor's


@dataclass(frozen=True)
class News:
    """A job reached a state."""

    job: str
    """HTCondor's id."""
    state: str
    bind_s: float | None = None


class PilotLog:
    """Follows the log of one pilot container and of HTCondor's startd in it."""

    def __init__(self, lab: Lab, pod: str) -> None:
        self._startd = Stream.of_pilot_files(lab, pod, "/var/log/condor/StartLog")
        self._pilot = Stream.of_pilot(lab, pod)

    def look(self) -> Iterator[News]:
        """Return what happened since the last call."""
        for line in self._startd.lines():
            if (match := _CLAIMED.search(line)) is not None:
                yield News(match[1], "claimed")
        for line in self._pilot.lines():
            if (match := _BOUND.search(line)) is not None:
                yield News(match["job"], "bound", float(match["seconds"]))
            elif (match := _RUNS.search(line)) is not None:
                yield News(f"{match['cluster']}.{match['proc']}", "running")

    def close(self) -> None:
        """Stop following."""
        self._startd.close()
        self._pilot.close()
