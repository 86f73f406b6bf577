"""The suite's own runner: who runs which tests when, and the account of their time."""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from lab import phases
from tests.runner import groups, table, times
from tests.runner.groups import Facts, Need
from tests.runner.scheduler import Scheduler

NEEDS: tuple[Need, ...] = ("nothing", "lab", "node alone")


@dataclass
class Worker:
    """A worker as pytest-xdist has it: it begins a test when it knows the next one, or that there is none."""

    name: str
    queue: list[int] = field(default_factory=list)
    runs: int | None = None
    shutting_down: bool = False
    keeps: bool = False

    @property
    def gateway(self) -> Any:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def begin(self) -> None:
        if self.runs is None and self.queue and (self.shutting_down or len(self.queue) > 1):
            self.runs = self.queue.pop(0)

    def __hash__(self) -> int:
        return hash(self.name)


class Session:
    """Stand-in for pytest-xdist's session: its workers, and its calls of a scheduler."""

    def __init__(self, facts: dict[str, Facts], workers: int) -> None:
        self.facts = facts
        self.tests = list(facts)
        self.scheduler = Scheduler(workers, lambda: facts, {})
        self.workers = [Worker(f"gw{number}") for number in range(workers)]
        self.ran: list[str] = []
        for worker in self.workers:
            self._join(worker)
        self.scheduler.schedule()

    def _join(self, worker: Any) -> None:
        self.scheduler.add_node(worker)
        self.scheduler.add_node_collection(worker, self.tests)

    def step(self, choose: random.Random) -> None:
        """One worker does something; checks that nothing runs beside a test that needs the node alone."""
        for worker in self.workers:
            worker.begin()
        running = [one for one in self.workers if one.runs is not None]
        if any(self.need(one) == "node alone" for one in running):
            (alone,) = (one for one in running if self.need(one) != "nothing")
            assert not [one for one in self.workers if one.keeps and one is not alone]
        ended = [one for one in self.workers if one.shutting_down and one.runs is None and not one.queue]
        chosen: Any = choose.choice([*running, *ended])
        if chosen.runs is None:
            self.workers.remove(chosen)
            assert self.scheduler.remove_node(chosen) is None
            return
        index, chosen.runs = chosen.runs, None
        chosen.keeps |= self.facts[self.tests[index]].keeps
        self.ran.append(self.tests[index])
        self.scheduler.mark_test_complete(chosen, index)

    def crash(self, worker: Any) -> str | None:
        """A worker dies; another one comes."""
        self.workers.remove(worker)
        crashed = self.scheduler.remove_node(worker)
        self.workers.append(new := Worker(f"{worker.name}-new"))
        self._join(new)
        self.scheduler.schedule()
        return crashed

    def need(self, worker: Worker) -> Need:
        assert worker.runs is not None
        return self.facts[self.tests[worker.runs]].need


def suite(seed: int) -> dict[str, Facts]:
    choose = random.Random(seed)
    found = {}
    for group in range(choose.randrange(1, 12)):
        need = choose.choice(NEEDS)
        for number in range(choose.randrange(1, 6)):
            keeps = need == "lab" and choose.random() < 0.2
            found[f"{group}-{number}"] = Facts("unit", need, f"{group} ({need})", choose.random(), keeps)
    return found


@pytest.mark.parametrize("seed", range(300))
def test_every_test_runs_once_and_those_that_need_the_node_alone_run_alone(seed: int) -> None:
    choose = random.Random(seed)
    session = Session(suite(seed), choose.randrange(1, 6))
    while session.workers:
        session.step(choose)
    assert sorted(session.ran) == sorted(session.tests)
    assert session.scheduler.tests_finished


@pytest.mark.parametrize("seed", range(100))
def test_what_a_worker_that_crashes_had_before_it_is_run_by_others(seed: int) -> None:
    choose = random.Random(seed)
    session = Session(suite(seed), 3)
    for worker in session.workers:
        worker.begin()
    victim = next((one for one in session.workers if one.runs is not None), None)
    crashed = session.crash(victim) if victim is not None else None
    assert (crashed is None) == (victim is None)
    while session.workers:
        session.step(choose)
    assert sorted([*session.ran, *([crashed] if crashed else [])]) == sorted(session.tests)


def test_one_worker_waits_for_the_lab_while_the_others_compute() -> None:
    facts = {
        f"{need}-{n}-{m}": Facts("e2e", need, f"{need}-{n}") for need in NEEDS[:2] for n in range(6) for m in (0, 1)
    }
    session = Session(facts, 3)
    for worker in session.workers:
        worker.begin()
    assert sorted(session.need(one) for one in session.workers) == ["lab", "nothing", "nothing"]


def test_a_tests_time_is_by_phase_and_never_more_than_its_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("lab.phases.time.monotonic", lambda: clock[0])
    phases.take()
    with phases.phase(phases.PILOT):
        clock[0] += 2
        with phases.phase(phases.CLEAN_UP):
            clock[0] += 1
        clock[0] += 4
    clock[0] += 8
    assert phases.take() == {"pilot": 6, "clean-up": 1}
    assert phases.take() == {}


def test_the_account_of_a_session_is_written_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    account = times.Account(tmp_path / "build/times.json", workers=3)
    steps: tuple[tuple[Literal["setup", "call"], float], ...] = (("setup", 4.0), ("call", 2.0))
    for when, seconds in steps:
        figures = {"part": "e2e", "processor": 0.5, "phases": {"pilot": seconds / 2}}
        report = pytest.TestReport(
            "tests/x.py::y[/b]", ("", 0, ""), {}, "passed", None, when, duration=seconds, start=0, stop=0
        )
        report.user_properties.append((times.KEY, json.dumps(figures)))
        account.pytest_runtest_logreport(report)
        assert report.user_properties == []
    account.pytest_sessionfinish()
    found = times.read(tmp_path / "build/times.json")
    (test,) = found["tests"].values()
    assert (test["wall"], test["processor"], test["waiting"]) == (6.0, 1.0, 5.0)
    assert test["phases"] == {"pilot": 3.0, "other": 3.0}
    table.show_times(found)
    shown = capsys.readouterr().out
    assert "By part" in shown
    assert "By phase" in shown
    assert "tests/x.py::y[/b]" in shown


def test_what_needs_nothing_runs_beside_what_needs_the_node_alone() -> None:
    facts = {
        f"{need}-{n}": Facts("e2e", need, f"{need}-{n}", 5.0)
        for need, count in zip(NEEDS, (60, 6, 60), strict=True)
        for n in range(count)
    }
    session, choose, beside = Session(facts, 4), random.Random(1), 0
    while session.workers:
        for worker in session.workers:
            worker.begin()
        needs = [session.need(one) for one in session.workers if one.runs is not None]
        beside += "node alone" in needs and "nothing" in needs
        session.step(choose)
    assert beside


def test_groups_that_take_longest_come_first() -> None:
    facts = {
        "a": Facts("unit", "nothing", "quick"),
        "b": Facts("e2e", "lab", "slow", 8.0),
        "c": Facts("unit", "nothing", "quick"),
    }
    found = groups.form(["a", "b", "c"], facts, {"a": 0.1})
    assert [(one.name, one.indices) for one in found] == [("slow", [1]), ("quick", [0, 2])]
