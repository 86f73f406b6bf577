"""The verdict of a soak on its jobs and its faults."""

import hashlib
import os
import random
import re
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from lab.jobs import Event
from soak import faults, neighbours, workload
from soak.blame import Hit, Run, unexplained
from soak.faults import drawn
from soak.ledger import Life
from soak.target import SLOT
from soak.verdict import Story, judge, unmade

PLAIN = [("SubmitEvent", 0.0), ("ExecuteEvent", 1.0), ("JobTerminatedEvent", 3.0)]
AGAIN = [("SubmitEvent", 0.0), ("ExecuteEvent", 1.0), ("JobEvictedEvent", 2.0), *[(k, t + 4) for k, t in PLAIN[1:]]]


def test_jobs_that_end_as_they_should_are_right_also_when_they_were_started_twice() -> None:
    lives = {"a": Life("1.0", 1.0, 1.9), "b": Life("1.0", 5.0, 6.5), "c": Life("1.1", 1.0, 3.0)}
    verdict = judge([Story("1.0", AGAIN, 7, 7), Story("1.1", PLAIN, 0, 0)], lives)
    assert (verdict.good, verdict.submitted, verdict.right, verdict.again) == (True, 2, 2, 1)
    assert verdict.reasons == {"JobEvictedEvent": 1}


def test_a_job_without_an_end_is_lost() -> None:
    verdict = judge([Story("1.0", [*PLAIN[:2], ("JobHeldEvent", 2.0)], None, 7)], {})
    assert verdict.lost == ["1.0: SubmitEvent, ExecuteEvent, JobHeldEvent"]


def test_another_exit_code_or_another_file_is_a_wrong_result() -> None:
    verdict = judge([Story("1.0", PLAIN, 137, 7), Story("1.1", PLAIN, 7, 7, files=False)], {})
    assert [one.partition(":")[0] for one in verdict.wrong] == ["1.0", "1.1"]


def test_two_runs_at_one_time_or_two_ends_are_doubled() -> None:
    lives = {"a": Life("1.0", 1.0, 9.0), "b": Life("1.0", 5.0, 6.5)}
    verdict = judge([Story("1.0", AGAIN, 7, 7), Story("1.1", [*PLAIN, ("JobTerminatedEvent", 4.0)], 7, 7)], lives)
    assert verdict.doubled == ["1.0", "1.1"]


def test_a_job_that_waits_for_too_long_once_it_had_begun_is_stuck() -> None:
    waits = [("SubmitEvent", 0.0), ("ExecuteEvent", 500.0), ("JobEvictedEvent", 502.0), ("JobTerminatedEvent", 700.0)]
    assert judge([Story("1.0", waits, 7, 7)], {}).stuck == ["1.0: 198 s between JobEvictedEvent and JobTerminatedEvent"]


def test_a_large_job_that_waits_for_a_match_behind_smaller_ones_is_not_stuck() -> None:
    waits = [*PLAIN[:2], ("JobEvictedEvent", 2.0), ("FileTransferEvent", 200.0), ("JobTerminatedEvent", 210.0)]
    verdict = judge([Story("1.0", waits, 7, 7, is_large=True)], {})
    assert verdict.good
    assert verdict.crowded_out == ["1.0: 198 s between JobEvictedEvent and FileTransferEvent"]
    assert judge([Story("1.0", waits, 7, 7)], {}).stuck == verdict.crowded_out
    slow = [*PLAIN[:2], ("FileTransferEvent", 200.0), ("JobTerminatedEvent", 210.0)]
    assert judge([Story("1.0", slow, 7, 7, is_large=True)], {}).stuck


def test_a_seed_draws_the_same_faults_again() -> None:
    one, two = (list(islice(drawn(7), 50)) for _ in range(2))
    assert one == two
    assert not any(fault.whole_node for fault in islice(drawn(7, whole_node=False), 200))


COMMAND_LINES = {
    "SUPERVISOR": "/opt/k8spilot/libexec/supervisor",
    "ENGINE_GET": "/opt/k8spilot/libexec/engine-get stream /run/k8spilot/docker.sock /k8spilot/gpu/monitor",
    "ENGINE": "/opt/k8spilot/bin/python -P -m k8spilot.engine",
    "STARTD": "condor_startd",
    "STARTER": "/usr/sbin/condor_starter -f -local-name slot_type_1 -a slot1 10.234.0.3",
    "CLIENT": "/run/k8spilot/condor/docker-client start -a HTCJob75_0_slot1_PID80",
    "PAYLOAD_INIT": "/k8spilot/bin/payload-init /k8spilot/payload.sock",
    "": "condor_master -f",
}
"""Command lines of the processes of a pod that runs a job."""


@pytest.mark.parametrize("pattern", [name for name in COMMAND_LINES if hasattr(faults, name)])
def test_each_pattern_finds_its_own_process_and_no_other(pattern: str) -> None:
    assert [name for name, line in COMMAND_LINES.items() if re.search(getattr(faults, pattern), line)] == [pattern]


def test_a_fault_that_never_meets_what_it_is_about_is_told() -> None:
    assert unmade(["starter killed"] * 4, []) == []
    assert unmade(["starter killed"] * 9, ["starter killed"]) == []
    assert unmade(["starter killed"] * 5, ["engine killed"]) == ["starter killed"]


RUN = Run("1.0", "hit", 3, 100.0, 110.0)


@pytest.mark.parametrize(
    ("hit", "explains"),
    [
        (Hit("starter killed", "hit", 3, 105.0, 105.0), True),
        (Hit("starter killed", "hit", 2, 105.0, 105.0), False),
        (Hit("engine killed", "hit", None, 105.0, 105.0), True),
        (Hit("engine killed", "calm", None, 105.0, 105.0), False),
        (Hit("kubelet restarted", "", None, 90.0, 99.0), True),
        (Hit("engine killed", "hit", None, 80.0, 90.0), False),
        (Hit("engine killed", "hit", None, 115.0, 116.0), False),
    ],
)
def test_a_fault_explains_the_early_ends_of_jobs_that_it_hit_and_of_no_neighbour(hit: Hit, *, explains: bool) -> None:
    assert unexplained([RUN], [hit]) == ([] if explains else ["1.0: on container 3 of hit from 100 to 110"])


def test_an_early_end_that_no_fault_explains_is_not_good() -> None:
    verdict = judge([Story("1.0", AGAIN, 7, 7, broken_runs=[RUN])], {})
    assert verdict.good
    verdict.again_unhit = unexplained([RUN], [])
    assert not verdict.good


def event(kind: str, second: int, **attributes: str) -> Event:
    return Event(0, kind, 0.0, {"EventTime": f"2026-11-21T10:00:{second:02}", **attributes})


def test_a_run_that_is_followed_by_another_lasts_from_its_first_transfer_to_its_early_end() -> None:
    events = [
        event("SubmitEvent", 0),
        event("FileTransferEvent", 1),
        event("ExecuteEvent", 4, SlotName="slot1_3@lab.a-soak-hit"),
        event("JobDisconnectedEvent", 5),
        event("JobReconnectFailedEvent", 9),
        event("FileTransferEvent", 11),
        event("ExecuteEvent", 12, SlotName="slot1_1@lab.a-soak-calm"),
        event("JobEvictedEvent", 14),
        event("ExecuteEvent", 20, SlotName="slot1_2@lab.a-soak-calm"),
        event("JobTerminatedEvent", 24),
    ]
    first, second = workload.broken_runs("1.0", events, ("a-soak-hit", "a-soak-calm"))
    assert (first.pod, first.container, first.ended - first.began) == ("a-soak-hit", 3, 8.0)
    assert (second.pod, second.container, second.ended - second.began) == ("a-soak-calm", 1, 3.0)


@pytest.mark.parametrize(
    "words",
    [
        "/usr/sbin/condor_starter -f -local-name slot_type_1 -a slot1_3 10.234.0.3",
        "/usr/bin/docker start --interactive -a HTCJob75_0_slot1_3_PID80",
        "slot1_3@lab.pilot",
    ],
)
def test_a_dynamic_slot_is_found_in_command_lines_and_names(words: str) -> None:
    found = SLOT.search(words)
    assert found is not None
    assert found[1] == "3"


def test_jobs_for_several_payload_containers_have_mixed_sizes_and_check_their_own() -> None:
    sizes = workload.sizes(random.Random(7), 40)
    assert {cpus for cpus, _ in sizes} == {1, 2, 3, 4}
    assert sizes == workload.sizes(random.Random(7), 40)
    assert workload.requests([(1, 64), (4, 1024)])["request_memory"] == "$CHOICE(Process,64,1024)"


@pytest.mark.parametrize("slots", [1, 8])
def test_the_program_of_a_job_does_what_is_expected_of_it(tmp_path: Path, slots: int) -> None:
    for name, text in {**workload.inputs(slots), "input": "batch 1\n"}.items():
        (tmp_path / name).write_text(text)
    ad = tmp_path / "ad"
    ad.write_text("Cpus = 77\nMemory = 77\n")
    command = ["sh", "job.sh", "1.105", "http://127.0.0.1:1"]
    environment = {**os.environ, "_CONDOR_MACHINE_AD": str(ad)}
    job = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    digest = hashlib.sha256(b"batch 1\n").hexdigest()
    assert (job.returncode, (tmp_path / "result.105").read_text()) == (5, f"{digest}\n")
    *before, last = job.stdout.splitlines()
    assert last == f"1.105 {digest}"
    assert before == [] if slots == 1 else before[0].endswith("and not its container has 77 CPUs and 77 MiB")
    assert job.stderr.endswith("of 1.105\n")


def test_most_faults_of_a_pod_with_several_payload_containers_hit_one_of_them() -> None:
    one = sum(fault.weight for fault in neighbours.ONE_CONTAINER)
    assert one > sum(fault.weight for fault in neighbours.KINDS if not fault.whole_node) / 2
