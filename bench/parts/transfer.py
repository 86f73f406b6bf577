"""Parts `streams` and `staging`: the standard output of a job, and its files, which HTCondor transfers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import bench
from bench import pictures
from bench.execution_points import DOCKER, ExecutionPoint
from bench.goals import STDOUT
from bench.job_times import whole
from bench.run import Run
from bench.statistics import Measurement
from lab.errors import LabError

PATIENCE_S = 300.0
ROUNDS = 3
MEBIBYTES = 256
FOLDER = "bench-files"
_MAKE: Final = Path(bench.__file__).parent / "scripts/files.sh"
"""Script that makes the files in a folder on the access point."""
_EVENTS: Final[Mapping[str, tuple[int, int]]] = {"in": (2, 3), "out": (5, 6)}
"""Types of begin and end in FileTransferEvents (FileTransferEventType, condor_utils/condor_event.h)."""

WHAT: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "1 GiB": ("big 1024", {"transfer_input_files": f"../../{FOLDER}/big"}),
    "10,000 files": ("files 10000", {"transfer_input_files": f"../../{FOLDER}/many"}),
}
"""Arguments with which a job makes its output, and submit commands for its input, by kind. Both have the same size."""
_SAME: Final = {"transfer_output_files": "made", "request_disk": "3G"}


def staging(run: Run) -> None:
    """Measure each kind on each execution point in turn: seconds between the transfer events in the job's log."""
    try:
        run.lab.access_point("alice", ["sh", "-s", FOLDER], input=_MAKE.read_text(), timeout=PATIENCE_S)
        shown: dict[str, list[float]] = {}
        for what in WHAT:
            seen: dict[str, dict[str, list[float]]] = {way: {} for way in _EVENTS}
            contestants = {name: _of(run, point, what, seen) for name, point in run.points().items()}
            kept = run.in_turn(contestants, run.times(ROUNDS, 1))
            for way in _EVENTS:
                found = {name: seen[way][name] for name in kept}
                run.compare(f"{what} {way}", found, "s")
                shown |= {f"{what} {way}: {name}": samples for name, samples in found.items()}
        pictures.bars(run.picture("staging"), "Files in and out", "s", shown)
    finally:
        run.lab.access_point("alice", f"rm -rf {FOLDER}")


def _of(run: Run, point: ExecutionPoint, what: str, seen: dict[str, dict[str, list[float]]]) -> Measurement:
    """Return a measurement: one job, whose seconds of both transfers go into `seen`."""
    words, commands = WHAT[what]

    def measurement() -> list[float]:
        with point.submit(run.image, words, commands={**commands, **_SAME}) as jobs:
            point.succeeded(jobs)
            moments = {
                int(event.attributes.get("Type", 0)): event.seen
                for event in jobs.events
                if event.kind == "FileTransferEvent"
            }
        for way, (begins, ends) in _EVENTS.items():
            if begins not in moments or ends not in moments:
                raise LabError(f"the log of a job ({point.name}) has not all events of its transfers: {moments}")
            seen[way].setdefault(point.name, []).append(moments[ends] - moments[begins])
        return []

    return measurement


def streams(run: Run) -> None:
    """Measure a job that only writes to its standard output: MiB a second by its own clock."""

    def of(point: ExecutionPoint) -> Callable[[], float]:
        return lambda: MEBIBYTES / _seconds(run, point)

    found = run.in_turn({name: of(point) for name, point in run.points().items()}, run.times(5, 2))
    run.compare("stdout", found, "MiB/s", {DOCKER: STDOUT})
    pictures.bars(run.picture("stdout"), "Standard output of a job", "MiB a second", found)


def _seconds(run: Run, point: ExecutionPoint) -> float:
    with point.submit(run.image, f"out {MEBIBYTES}", commands={"request_disk": "1G"}) as jobs:
        point.succeeded(jobs)
        job_times = whole(run.lab.access_point("alice", f"cat {jobs.folder}/err.0"), f"a job ({point.name})")
    return job_times["end"] - job_times["start"]
