"""What the pilot's side knows of the demonstration's jobs: when each was claimed and ran, how long its bind took."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.api import Lab
from lab.streams import Stream

_CLAIMED = re.compile(r"Remote job ID is (\d+\.\d+)")  # condor_startd
_BOUND = re.compile(r"Bound \S+ in (?P<seconds>[0-9.]+) s")  # k8spilot
_RUNS = re.compile(r"HTCJob(?P<cluster>\d+)_(?P<proc>\d+)_\S* runs\.")  # k8spilot; the name is HTCondor's


@dataclass(frozen=True)
class News:
    """Something that happened to a job."""

    job: str
    """HTCondor's id."""
    state: str
    bind_s: float | None = None


class PilotLog:
    """Follows one pilot."""

    def __init__(self, lab: Lab, pod: str) -> None:
        self._startd = Stream.of_pilot_files(lab, pod, "/var/log/condor/StartLog")
        self._pilot = Stream.of_pilot(lab, pod)
        self._job = ""

    def look(self) -> Iterator[News]:
        """What has happened since the last look."""
        for line in self._startd.lines():
            if (match := _CLAIMED.search(line)) is not None:
                self._job = match[1]
                yield News(self._job, "claimed")
        for line in self._pilot.lines():
            # One payload container, one job at a time: what is bound is bound for the job that was claimed last.
            if (match := _BOUND.search(line)) is not None:
                yield News(self._job, "bound", float(match["seconds"]))
            elif (match := _RUNS.search(line)) is not None:
                yield News(f"{match['cluster']}.{match['proc']}", "running")

    def close(self) -> None:
        """Follow no longer."""
        self._startd.close()
        self._pilot.close()
