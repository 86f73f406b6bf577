"""The course of a soak test: jobs are kept in the queue while faults are made; then the remaining jobs run."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lab import pilot
from lab.api import Lab
from lab.errors import LabError, NothingToHitError
from lab.jobs import Jobs, submit, wait_in_pool
from lab.patience import scaled
from lab.settings import NODE_ADDRESS
from soak import faults, neighbours, workload
from soak.blame import Hit, unexplained
from soak.faults import Fault, drawn
from soak.ledger import Ledger, kept
from soak.pods import Figures, measure
from soak.target import Target
from soak.verdict import Story, Verdict, judge, unmade

_REST_SECONDS: Final = 240.0
"""Time limit of the remaining jobs after the last fault."""
_EASE_SECONDS: Final = 30.0
"""Pause between two faults that end a whole container, so that the kubelet's back-off has no effect."""

_WEIGHED_JOBS: Final = 50
"""Number of jobs that the calm pilot starts between two measurements of its memory."""

_PLAY_MIB: Final = 1.5
"""Growth of memory that is allowed for caches and a fragmented heap, however few jobs there were. 400 outages of the
API server, with a job after each, made 1.3 MiB, most of it in the first fifty."""
_PLAY_MIB_EACH: Final = 0.25
"""Allowed growth for each further payload container."""
_PLAY_DESCRIPTORS: Final = 4
"""Number of additional descriptors that are allowed for a request under way."""


@dataclass
class Report:
    """Results of a soak."""

    seed: int
    seconds: float
    faults: list[str]
    """Names of the faults, in order."""
    verdict: Verdict
    trouble: list[str]
    """Faults that could not be made."""
    before: Figures
    after: Figures
    """Figures of the calm pod, which only faults of the whole node hit, at the end; `before`: at the beginning."""
    calm_jobs: int
    """Number of jobs that began on the calm pod between the two."""
    slots: int = 1
    """Payload containers of each pod."""
    memory: list[tuple[int, float]] = field(default_factory=list)
    """Memory of the calm pilot itself (MiB), each with the number of jobs that it had started."""
    hits: list[Hit] = field(default_factory=list)
    """The faults, with their times."""

    @property
    def growth(self) -> float:
        """Growth of the calm pilot's own memory, MiB."""
        return self.after.own - self.before.own

    @property
    def steady(self) -> bool:
        """Whether the calm pilot has not changed: the same engine, without growth of memory, descriptors or files."""
        before, after = self.before, self.after
        return (
            after.engine == before.engine
            and self.growth <= max(_PLAY_MIB + _PLAY_MIB_EACH * (self.slots - 1), self.calm_jobs / 1000)
            and after.descriptors <= before.descriptors + _PLAY_DESCRIPTORS
            and after.files == 0
        )


@dataclass
class Campaign:
    """A soak."""

    lab: Lab
    seed: int
    jobs: int
    """Least number of jobs."""
    faults: int
    minutes: float
    """Time after which no new faults are made (scaled)."""
    prefix: str
    say: Callable[[str], None]
    whole_node: bool = True
    """Whether faults of the whole node are made, too."""
    batch: int = 20
    """Number of jobs of one submission. Half as many wait or run at any time."""
    slots: int = 1
    """Payload containers of each pod."""
    made: list[Hit] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Names of faults whose object did not exist at that moment."""
    trouble: list[str] = field(default_factory=list)
    batches: list[Jobs] = field(default_factory=list)
    memory: list[tuple[int, float]] = field(default_factory=list)

    @property
    def hit(self) -> Target:
        """The pod that all faults hit."""
        return Target(self.lab, f"{self.prefix}soak-hit", self.slots)

    @property
    def calm(self) -> Target:
        """The pod that only faults of the whole node hit."""
        return Target(self.lab, f"{self.prefix}soak-calm", self.slots)

    def run(self) -> Report:
        """Run the soak to its end."""
        began = time.monotonic()
        with ExitStack() as cleanup:
            for pod in (self.hit, self.calm):
                pod.deploy()
                cleanup.callback(pilot.delete, self.lab, pod.name)
            for pod in (self.hit, self.calm):
                wait_in_pool(self.lab, pod.name)
            ledger = cleanup.enter_context(kept())
            feed = partial(self._feed, ledger, cleanup)
            feed()
            self._until(lambda: self._ended() >= self.batch // 2, 120)
            before, so_far = measure(self.lab, self.calm.name), self._begun_on_calm()
            self._disturb(feed, began)
            made = [hit.fault for hit in self.made]
            self.trouble += [f"{name}: never met what it is about" for name in unmade(self.missed, made)]
            self._until(lambda: self._ended() >= self._submitted(), _REST_SECONDS)
            self._look()
            after = measure(self.lab, self.calm.name)
            stories = self._stories()
            verdict = judge(stories, ledger.lives)
            verdict.again_unhit = unexplained((run for story in stories for run in story.broken_runs), self.made)
            return Report(
                seed=self.seed,
                seconds=time.monotonic() - began,
                faults=made,
                verdict=verdict,
                trouble=self.trouble,
                before=before,
                after=after,
                calm_jobs=self._begun_on_calm() - so_far,
                slots=self.slots,
                memory=self.memory,
                hits=self.made,
            )

    def _disturb(self, feed: Callable[[], None], began: float) -> None:
        draw = random.Random(self.seed)
        last_end = 0.0
        kinds = faults.KINDS if self.slots == 1 else neighbours.KINDS
        for fault in drawn(self.seed, kinds, whole_node=self.whole_node):
            if len(self.made) >= self.faults:
                break
            if time.monotonic() - began > scaled(self.minutes * 60):
                self.say("the time is over")
                break
            if fault.name in ("pilot container killed", "pod deleted"):
                self._until(lambda: time.monotonic() - last_end > _EASE_SECONDS, _EASE_SECONDS)  # noqa: B023
                last_end = time.monotonic()
            self._make(fault, draw, feed)
            feed()
            self._weigh()
            self._wait(draw.choice((0.0, 1.0, 3.0, 6.0)))
        while self._submitted() < self.jobs and time.monotonic() - began < scaled(self.minutes * 60):
            feed()
            self._wait(1.0)

    def _make(self, fault: Fault, draw: random.Random, feed: Callable[[], None]) -> None:
        self._until(lambda: pilot.runs(self.lab, self.hit.name), _EASE_SECONDS)
        began, container = time.time(), None
        try:
            with ThreadPoolExecutor(1) as beside:
                making = beside.submit(fault.make, self.hit, draw)
                while not making.done():
                    feed()
                    self._wait(0.3)
            container = making.result()
        except NothingToHitError as reason:
            self.say(f"     {fault.name}: {reason}")
            self.missed.append(fault.name)
            return
        except LabError as problem:
            self.trouble.append(f"{fault.name}: {problem}")
        pod = "" if fault.whole_node else self.hit.name
        self.made.append(Hit(fault.name, pod, container, began, time.time()))
        where = "" if container is None else f" of container {container}"
        self.say(
            f"{len(self.made):4} {fault.name}{where} ({time.time() - began:.1f} s); "
            f"{self._ended()} of {self._submitted()} jobs have ended"
        )

    def _feed(self, ledger: Ledger, cleanup: ExitStack) -> None:
        """Submit jobs until enough of them wait or run."""
        self._look()
        while self._submitted() - self._ended() < self.batch // 2:
            self._submit(ledger, cleanup)

    def _weigh(self) -> None:
        """Measure the calm pilot's own memory from time to time, unless faults of the node could make that fail."""
        begun = self._begun_on_calm()
        if not self.whole_node and begun >= (self.memory[-1][0] if self.memory else 0) + _WEIGHED_JOBS:
            self.memory.append((begun, round(measure(self.lab, self.calm.name).own, 2)))

    def _submit(self, ledger: Ledger, cleanup: ExitStack) -> None:
        number = len(self.batches)
        files = {**workload.inputs(self.slots), "input": f"batch {number}\n"}
        commands = {
            "container_image": f"docker://{self.lab.registry}/busybox",
            "executable": "job.sh",
            "transfer_executable": "true",
            "arguments": f"{number}.$(Process) http://{NODE_ADDRESS}:{ledger.port}",
            "transfer_input_files": ",".join(sorted(files.keys() - {"job.sh"})),
            "transfer_output_files": "result.$(Process)",
            "requirements": f'regexp("^{self.prefix}soak-", TARGET.K8SPodName)',
            "job_lease_duration": str(workload.LEASE_SECONDS),
            "priority": str(-1000 - number),  # behind the jobs of tests that use the lab, too
        }
        if self.slots > 1:
            commands |= workload.requests(self._sizes(number))
        jobs = submit(self.lab, "alice", commands, files=files, count=self.batch)
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
        deadline = time.monotonic() + scaled(seconds)
        while not condition() and time.monotonic() < deadline:
            self._look()
            time.sleep(0.2)

    def _submitted(self) -> int:
        return sum(batch.count for batch in self.batches)

    def _ended(self) -> int:
        return sum(event.kind == "JobTerminatedEvent" for batch in self.batches for event in batch.events)

    def _begun_on_calm(self) -> int:
        events = (event for batch in self.batches for event in batch.events if event.kind == "ExecuteEvent")
        return sum(str(event.attributes.get("SlotName", "")).endswith(self.calm.name) for event in events)

    def _stories(self) -> list[Story]:
        pods = (self.hit.name, self.calm.name)
        return [
            story
            for number, batch in enumerate(self.batches)
            for story in workload.stories(number, batch, pods, self._sizes(number))
        ]

    def _sizes(self, number: int) -> list[tuple[int, int]]:
        """Return the CPUs and MiB that each job of a submission requests; empty for pods with one payload container."""
        return [] if self.slots == 1 else workload.sizes(random.Random(f"{self.seed} {number}"), self.batch)
