"""The course of a soak test: jobs are kept in the queue while faults are made; then the remaining jobs run."""

import hashlib
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from lab import pilot
from lab.api import Lab
from lab.errors import LabError, NothingToHitError
from lab.jobs import Event, Jobs, submit, wait_in_pool
from lab.settings import NODE_ADDRESS
from soak.faults import Fault, drawn
from soak.ledger import Ledger, kept
from soak.pods import Figures, measure
from soak.verdict import Story, Verdict, judge, unmade

LEASE_SECONDS: Final = 60
"""Of each job: what HTCondor's own rules make of a starter that went down with all that knew it takes this long."""
_REST_SECONDS: Final = 240.0
"""For the jobs that are left when there are no more faults."""
_EASE_SECONDS: Final = 30.0
"""Between two faults that end a whole container: the kubelet's back-off is not what is looked at here."""

_PLAY_MIB: Final = 1.5
"""What caches and a heap in pieces may take, however few jobs there were: 400 outages of the API server, with a job
after each, made 1.3 MiB, most of it in the first fifty."""
_PLAY_DESCRIPTORS: Final = 4
"""A request that is just under way."""

SCRIPT: Final = """#!/bin/sh
run=$(cat /proc/sys/kernel/random/uuid)
tell() { wget -q -T 3 -O /dev/null "$2/$1/$run" 2>/dev/null || :; }
tell "$1" "$2"
number=${1#*.}
for _ in $(seq 0 $((number % 5))); do sleep 0.4; tell "$1" "$2"; done
sum=$(sha256sum input | cut -d' ' -f1)
echo "$1 $sum"
echo "of $1" >&2
echo "$sum" > result.$number
tell "$1" "$2"
exit $((number % 100))
"""


@dataclass
class Report:
    """What came out."""

    seed: int
    seconds: float
    faults: list[str]
    """Names, in order."""
    verdict: Verdict
    trouble: list[str]
    """Faults that could not be made."""
    before: Figures
    after: Figures
    """Of the pod that only the node's faults hit."""
    calm_jobs: int
    """Jobs that began there between the two."""

    @property
    def growth(self) -> float:
        """How much more memory of its own that pilot has than before, MiB."""
        return self.after.own - self.before.own

    @property
    def steady(self) -> bool:
        """Whether that pilot is what it was before: the same engine, which keeps nothing of what it did."""
        before, after = self.before, self.after
        return (
            after.engine == before.engine
            and self.growth <= max(_PLAY_MIB, self.calm_jobs / 1000)
            and after.descriptors <= before.descriptors + _PLAY_DESCRIPTORS
            and after.files == 0
        )


@dataclass
class Campaign:
    """One soak."""

    lab: Lab
    seed: int
    jobs: int
    """At least so many."""
    faults: int
    minutes: float
    """No new faults after that."""
    prefix: str
    say: Callable[[str], None]
    whole_node: bool = True
    """Make faults of the whole node, too."""
    batch: int = 20
    """Jobs of one submission. Half as many wait at any time."""
    made: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Faults whose object was not there just then."""
    trouble: list[str] = field(default_factory=list)
    batches: list[Jobs] = field(default_factory=list)

    @property
    def hit(self) -> str:
        """The pod that all faults hit."""
        return f"{self.prefix}soak-hit"

    @property
    def calm(self) -> str:
        """The pod that only faults of the whole node hit."""
        return f"{self.prefix}soak-calm"

    def run(self) -> Report:
        """Run it to its end."""
        began = time.monotonic()
        with ExitStack() as cleanup:
            for pod in (self.hit, self.calm):
                pilot.deploy(self.lab, pod)
                cleanup.callback(pilot.delete, self.lab, pod)
            for pod in (self.hit, self.calm):
                wait_in_pool(self.lab, pod)
            ledger = cleanup.enter_context(kept())
            self._submit(ledger, cleanup)
            self._until(lambda: self._ended() >= self.batch // 2, 120)
            before, so_far = measure(self.lab, self.calm), self._begun_on_calm()
            self._disturb(ledger, cleanup, began)
            self.trouble += [f"{name}: never met what it is about" for name in unmade(self.missed, self.made)]
            self._until(lambda: self._ended() >= self._submitted(), _REST_SECONDS)
            after = measure(self.lab, self.calm)
            verdict = judge(self._stories(), ledger.lives)
            return Report(
                self.seed, time.monotonic() - began, self.made, verdict, self.trouble, before, after,
                self._begun_on_calm() - so_far,
            )  # fmt: skip

    def _disturb(self, ledger: Ledger, cleanup: ExitStack, began: float) -> None:
        draw = random.Random(self.seed)
        last_end = 0.0
        for fault in drawn(self.seed, whole_node=self.whole_node):
            if len(self.made) >= self.faults:
                break
            if time.monotonic() - began > self.minutes * 60:
                self.say("the time is over")
                break
            if fault.name in ("pilot container killed", "pod deleted"):
                self._until(lambda: time.monotonic() - last_end > _EASE_SECONDS, _EASE_SECONDS)  # noqa: B023
                last_end = time.monotonic()
            self._make(fault, draw)
            self._feed(ledger, cleanup)
            self._wait(draw.choice((0.0, 1.0, 3.0, 6.0)))
        while self._submitted() < self.jobs and time.monotonic() - began < self.minutes * 60:
            self._feed(ledger, cleanup)
            self._wait(1.0)

    def _make(self, fault: Fault, draw: random.Random) -> None:
        self._until(lambda: pilot.runs(self.lab, self.hit), _EASE_SECONDS)
        at = time.monotonic()
        try:
            fault.make(self.lab, self.hit, draw)
        except NothingToHitError as reason:
            self.say(f"     {fault.name}: {reason}")
            self.missed.append(fault.name)
            return
        except LabError as problem:
            self.trouble.append(f"{fault.name}: {problem}")
        self.made.append(fault.name)
        self.say(
            f"{len(self.made):4} {fault.name} ({time.monotonic() - at:.1f} s); "
            f"{self._ended()} of {self._submitted()} jobs have ended"
        )

    def _feed(self, ledger: Ledger, cleanup: ExitStack) -> None:
        """Keep jobs waiting."""
        self._look()
        while self._submitted() - self._ended() < self.batch // 2:
            self._submit(ledger, cleanup)

    def _submit(self, ledger: Ledger, cleanup: ExitStack) -> None:
        number = len(self.batches)
        commands = {
            "container_image": f"docker://{self.lab.registry}/busybox",
            "executable": "job.sh",
            "transfer_executable": "true",
            "arguments": f"{number}.$(Process) http://{NODE_ADDRESS}:{ledger.port}",
            "transfer_input_files": "input",
            "transfer_output_files": "result.$(Process)",
            "requirements": f'regexp("^{self.prefix}soak-", TARGET.K8SPodName)',
            "job_lease_duration": str(LEASE_SECONDS),
        }
        jobs = submit(
            self.lab, "alice", commands, files={"job.sh": SCRIPT, "input": f"batch {number}\n"}, count=self.batch
        )
        cleanup.callback(jobs.remove)
        self.batches.append(jobs)

    def _look(self) -> None:
        for batch in self.batches:
            batch.look()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look()
            time.sleep(0.1)

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self._look()
            time.sleep(0.2)

    def _submitted(self) -> int:
        return sum(batch.count for batch in self.batches)

    def _ended(self) -> int:
        return sum(event.kind == "JobTerminatedEvent" for batch in self.batches for event in batch.events)

    def _begun_on_calm(self) -> int:
        events = (event for batch in self.batches for event in batch.events if event.kind == "ExecuteEvent")
        return sum(str(event.attributes.get("SlotName", "")).endswith(self.calm) for event in events)

    def _stories(self) -> list[Story]:
        return [story for number, batch in enumerate(self.batches) for story in _stories(number, batch)]


def _stories(number: int, batch: Jobs) -> list[Story]:
    files = batch.files()
    found = []
    for proc in range(batch.count):
        events = [event for event in batch.events if event.proc == proc]
        end = next((event for event in events if event.kind == "JobTerminatedEvent"), None)
        name, digest = f"{number}.{proc}", hashlib.sha256(files["input"]).hexdigest()
        expected = {f"out.{proc}": f"{name} {digest}\n", f"err.{proc}": f"of {name}\n", f"result.{proc}": f"{digest}\n"}
        found.append(
            Story(
                name=name,
                events=[(event.kind, _time(event)) for event in events],
                code=None if end is None else end.attributes.get("ReturnValue"),
                expected=proc % 100,
                files=all(files.get(path) == text.encode() for path, text in expected.items()),
            )
        )
    return found


def _time(event: Event) -> float:
    """When it happened (seconds since 1970): while a fault is made nobody reads the log."""
    return datetime.fromisoformat(event.attributes["EventTime"]).timestamp()
