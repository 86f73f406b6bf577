"""The same jobs through a plain HTCondor on a real dockerd and through a pilot: users see the same."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from lab import docker_ep, jobs, pilot
from lab.api import Lab
from lab.dockerd import Dockerd
from lab.jobs import BAD_NEWS
from tests.oracle.engines import kind
from tests.oracle.scripts.inputs import ENTRYPOINT

pytestmark = pytest.mark.landing  # tests/oracle/test_lines.py compares what HTCondor asks of the two each time

CODES: Final = (0, 1, 7, 126, 127, 128, 129, 137, 200, 254, 255)
SIGNALS: Final = (15, 9, 11)
_TOLD: Final = ("TerminatedNormally", "ReturnValue", "TerminatedBySignal", "HoldReasonCode", "HoldReasonSubCode")


@dataclass(frozen=True)
class Case:
    """Jobs of one submit file."""

    commands: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    """A shell script; the program is `commands`' own without one."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    count: int = 1
    image: str = "busybox"


CASES: Final = {
    "codes": Case(
        script=f"set -- $1 {' '.join(map(str, CODES))}; shift $(($1 + 1)); exit $1",
        count=len(CODES),
    ),
    "signals": Case(
        script=f"set -- $1 {' '.join(map(str, SIGNALS))}; shift $(($1 + 1)); ulimit -c 0; kill -$1 $$; sleep 60",
        count=len(SIGNALS),
    ),
    "output": Case(
        script="printf 'out\\0\\377'; printf 'err' >&2; echo made > made", commands={"transfer_output_files": "made"}
    ),
    "missing": Case({"executable": "/no/such/program"}),
    "no-image": Case(image="no-such-image"),
    "bad-reference": Case(image="Upper/Case"),
    "arguments": Case(
        {"arguments": "\"0 'a b' '' 'it''s' \"\"q\"\" $HOME *\"", "environment": "\"A='1 2' B=grün C=\""},
        script='printf "[%s]" "$@"; printf "[%s]" "$A" "$B" "$C"',
    ),
    "entrypoint": Case({"executable": "/usr/bin/printenv", "arguments": "MARK"}, image=ENTRYPOINT),
    "entrypoint-overridden": Case(
        {
            "executable": "/usr/bin/printenv",
            "arguments": "WRAPPED",
            "universe": "docker",
            "docker_override_entrypoint": "true",
        },
        image=ENTRYPOINT,
    ),
    "memory": Case(script="dd if=/dev/zero of=/dev/null bs=1500M count=1; echo survived"),
    "stdin": Case({"input": "given"}, script="cat; echo end", files={"given": "one\ntwo"}),
}

MEANT: Final = {
    ("codes", CODES.index(255)): "HTCondor tells 255 as 0 there, a failed job as a good one; here as 128",
    ("stdin", 0): "HTCondor passes no standard input to Docker; a pilot's docker client does",
}
"""Intended differences by case and job, with their reasons."""


@dataclass(frozen=True)
class Seen:
    """End of one job, as its user sees it."""

    event: Mapping[str, Any]
    stdout: bytes
    stderr: str
    """As it is, or what it is about if the engine has written it."""
    files: frozenset[str]
    """Of all jobs of its submit file."""


class Place:
    """One execution point."""

    def __init__(self, lab: Lab, pod: str, commands: Mapping[str, str]) -> None:
        self._lab = lab
        self._pod = pod
        self._commands = commands

    def see(self) -> dict[tuple[str, int], Seen]:
        """Submit all cases at once, and wait for every job to end or to be held."""
        with ExitStack() as cleanup:
            begun = {name: cleanup.enter_context(self._submit(case)) for name, case in CASES.items()}
            return {(name, proc): seen for name, one in begun.items() for proc, seen in enumerate(self._ends(one))}

    def _submit(self, case: Case) -> jobs.Jobs:
        image = case.image if ":" in case.image else f"{case.image}:latest"
        universe = case.commands.get("universe", "container")
        chosen = {
            f"{universe}_image": ("" if universe == "docker" else "docker://") + f"{self._lab.registry}/{image}",
            "transfer_output_files": '""',
            "request_memory": "64M",
            **self._commands,
            **case.commands,
        }
        files = dict(case.files)
        if case.script:
            chosen = {"executable": "job.sh", "transfer_executable": "true", "arguments": "$(Process)", **chosen}
            files["job.sh"] = f"#!/bin/sh\n{case.script}\n"
        return jobs.submit(self._lab, "alice", chosen, files=files, pilot=self._pod, count=case.count)

    def _ends(self, begun: jobs.Jobs) -> list[Seen]:
        """Wait for the ends of the jobs of one submit file, and return them."""
        kinds = ("JobTerminatedEvent", "JobHeldEvent")
        events = [begun.wait(*kinds, proc=proc, timeout=120, ignore=BAD_NEWS) for proc in range(begun.count)]
        files = begun.files()
        return [
            Seen(
                _told(event),
                files.get(f"out.{event.proc}", b""),
                kind(files.get(f"err.{event.proc}", b"").decode()),
                frozenset(files),
            )
            for event in events
        ]


def _told(event: jobs.Event) -> dict[str, Any]:
    """Return how the job ended, and the subject of the reason if it is held."""
    facts = {key: event.attributes[key] for key in _TOLD if key in event.attributes}
    return {"kind": event.kind, "about": kind(str(event.attributes.get("HoldReason", ""))), **facts}


def _on_dockerd(lab: Lab, pod: str) -> dict[tuple[str, int], Seen]:
    docker_ep.deploy(lab, pod)
    return Place(lab, pod, docker_ep.WANTED).see()


def _on_pilot(lab: Lab, pod: str) -> dict[tuple[str, int], Seen]:
    pilot.deploy(lab, pod)
    jobs.wait_in_pool(lab, pod)
    return Place(lab, pod, {}).see()


@pytest.fixture(scope="module")
def seen(lab: Lab, real: Dockerd, entrypoint: str, owner: str) -> Iterator[dict[str, dict[tuple[str, int], Seen]]]:
    """End of every job, on both execution points."""
    assert real.socket.exists()
    assert entrypoint
    plain = f"docker-ep-{owner}"
    ours = f"oracle-jobs-{owner}"
    with ExitStack() as cleanup, ThreadPoolExecutor() as threads:
        cleanup.callback(docker_ep.delete, lab, plain)
        cleanup.callback(pilot.delete, lab, ours)
        begun = {
            "dockerd": threads.submit(_on_dockerd, lab, plain),
            "k8spilot": threads.submit(_on_pilot, lab, ours),
        }
        yield {name: one.result() for name, one in begun.items()}


@pytest.mark.parametrize("name", CASES)
def test_users_see_the_same(seen: dict[str, dict[tuple[str, int], Seen]], name: str) -> None:
    for proc in range(CASES[name].count):
        if (name, proc) not in MEANT:
            assert seen["k8spilot"][name, proc] == seen["dockerd"][name, proc], proc


def test_what_differs_does_so_in_the_way_that_is_meant(seen: dict[str, dict[tuple[str, int], Seen]]) -> None:
    failed = ("codes", CODES.index(255))
    assert seen["dockerd"][failed].event["ReturnValue"] == 0
    assert seen["k8spilot"][failed].event["ReturnValue"] == 128
    assert seen["dockerd"]["stdin", 0].stdout == b"end\n"
    assert seen["k8spilot"]["stdin", 0].stdout == b"one\ntwoend\n"


def test_codes_and_signals_are_what_htcondors_docker_universe_makes_of_them(
    seen: dict[str, dict[tuple[str, int], Seen]],
) -> None:
    for proc, code in enumerate(CODES[:-1]):
        event = seen["k8spilot"]["codes", proc].event
        assert event.get("ReturnValue" if code <= 128 else "TerminatedBySignal") == (
            code if code <= 128 else code - 128
        )
    for proc, number in enumerate(SIGNALS):
        assert seen["k8spilot"]["signals", proc].event["TerminatedBySignal"] == number
