"""The jobs of a soak: their program, their requests, and their expected results."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from lab.jobs import Event, Jobs
from lab.settings import CHECKOUT, HERE
from soak.blame import Run
from soak.neighbours import number_of
from soak.target import CPUS_EACH, MEMORY_MB_EACH
from soak.verdict import Story

LEASE_SECONDS: Final = 60
"""Lease of each job, in seconds: the time after which HTCondor gives up a starter whose loss nobody could report."""
_CPUS: Final = (1, 1, 1, 2, 2, 3, 4)
_MEMORY_MB: Final = (64, 64, 100, 128, 256, 256, 512, 1024)
"""Values that jobs for pods with several payload containers request; repetitions make a value more frequent."""
_RUN_ENDS: Final = frozenset(
    {"JobEvictedEvent", "ShadowExceptionEvent", "JobReconnectFailedEvent", "JobTerminatedEvent"}
)

_JOB: Final = (CHECKOUT / "soak/job.sh").read_text()
_LIMITS: Final = (HERE / "scripts/limits.sh").read_text()


def inputs(slots: int) -> dict[str, str]:
    """Return the jobs' program and, for several payload containers, the script that checks the container's size."""
    return {"job.sh": _JOB} if slots == 1 else {"job.sh": _JOB, "limits.sh": _LIMITS}


def sizes(draw: random.Random, count: int) -> list[tuple[int, int]]:
    """Draw the requests of jobs for pods with several payload containers: CPUs and MiB of memory of each."""
    return [(draw.choice(_CPUS), draw.choice(_MEMORY_MB)) for _ in range(count)]


def requests(drawn: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Return the submit commands that request these sizes."""
    cpus, memory = (",".join(map(str, values)) for values in zip(*drawn, strict=True))
    return {
        "request_cpus": f"$CHOICE(Process,{cpus})",
        "request_memory": f"$CHOICE(Process,{memory})",
        "request_disk": "20M",
    }


def stories(number: int, batch: Jobs, pods: tuple[str, ...], drawn: Sequence[tuple[int, int]]) -> list[Story]:
    """Describe the outcome of each job of a submission; `drawn` are the sizes of its jobs, if they differ."""
    files = batch.files()
    found = [_story(f"{number}.{proc}", proc, batch, files, pods) for proc in range(batch.count)]
    large = [cpus > CPUS_EACH or memory > MEMORY_MB_EACH for cpus, memory in drawn] or [False] * batch.count
    return [replace(story, is_large=one) for story, one in zip(found, large, strict=True)]


def _story(name: str, proc: int, batch: Jobs, files: Mapping[str, bytes], pods: tuple[str, ...]) -> Story:
    events = [event for event in batch.events if event.proc == proc]
    end = next((event for event in events if event.kind == "JobTerminatedEvent"), None)
    digest = hashlib.sha256(files["input"]).hexdigest()
    expected = {f"out.{proc}": f"{name} {digest}\n", f"err.{proc}": f"of {name}\n", f"result.{proc}": f"{digest}\n"}
    wrong = [path for path, text in expected.items() if files.get(path) != text.encode()]
    said = files.get(f"out.{proc}", b"").decode(errors="replace").splitlines()
    return Story(
        name=name,
        events=[(event.kind, time_of(event)) for event in events],
        code=None if end is None else end.attributes.get("ReturnValue"),
        expected=proc % 100,
        files=not wrong,
        detail="; ".join([*wrong, *(said[:1] if f"out.{proc}" in wrong else [])]),
        broken_runs=broken_runs(name, events, pods),
    )


def broken_runs(name: str, events: list[Event], pods: tuple[str, ...]) -> list[Run]:
    """Return the starts of a job that were followed by another start."""
    starts = [number for number, event in enumerate(events) if event.kind == "ExecuteEvent"]
    broken = []
    previous = 0
    for this, following in pairwise(starts):
        event = events[this]
        # HTCondor writes the start down late where the machine is busy: the run begins with the transfer of its files.
        first = next((one for one in events[previous:this] if one.kind == "FileTransferEvent"), event)
        end = next((one for one in events[this + 1 : following] if one.kind in _RUN_ENDS), events[following])
        previous = events.index(end)
        slot = str(event.attributes.get("SlotName", ""))
        pod = next((pod for pod in pods if slot.endswith(pod)), slot)
        broken.append(Run(name, pod, number_of(event), time_of(first), time_of(end)))
    return broken


def time_of(event: Event) -> float:
    """Return the time of an event in seconds since 1970. The event log has it: nobody reads the log during a fault."""
    return datetime.fromisoformat(event.attributes["EventTime"]).replace(tzinfo=UTC).timestamp()
