"""Why a pilot ends, by HTCondor's log lines and by what is certain."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from k8spilot.condor.daemons.end_reason import EndReason
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.kube.deletion import deletion
from k8spilot.model.pool_state import LOG, PoolState

IDLE = ("StartLog", "No resources have been claimed for 1800 seconds")
RETIRED = (
    "StartLog",
    'The DaemonShutdown expression "time() > GLIDEIN_ToRetire" evaluated to TRUE: starting graceful shutdown',
)
OVER = ("MasterLog", RETIRED[1].replace("ToRetire", "ToDie"))
TOLD = ("MasterLog", "Got SIGTERM. Performing graceful shutdown.")
DRAIN = [
    ("StartLog", "Processing drain request from TOOL on <10.0.0.5:4711> with reverse connect address <10.0.0.5:1?x>"),
    ("StartLog", 'DrainReason = "by root"'),
    ("StartLog", "As specified in draining request, exiting after completion of draining."),
]
OFF = ("MasterLog", "The STARTD (pid 17) exited with status 0 (daemon will not restart automatically)")


def after(*lines: tuple[str, str], file: Path | None = None) -> EndReason:
    reason = EndReason(file, 30.0)
    for log, message in lines:
        reason.handle_line(log, LogLine(message, "D_ALWAYS"))
    return reason


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([IDLE, TOLD], "idle for 30 min (ACCEPT_IDLE_MINUTES)"),
        ([TOLD, IDLE], "idle for 30 min (ACCEPT_IDLE_MINUTES)"),
        ([RETIRED, OFF], "its time to take jobs is over"),
        ([OVER, TOLD], "its time is over"),
        ([*DRAIN, OFF], "drained by a tool at 10.0.0.5 (by root)"),
        (DRAIN[2:], "drained"),
        ([OFF], "turned off (condor_off)"),
        ([TOLD, OFF], "told to end (SIGTERM)"),
        (DRAIN[:2], ""),
        ([], ""),
    ],
)
def test_the_reason_is_read_from_htcondors_log(lines: list[tuple[str, str]], words: str) -> None:
    found = after(*lines).text
    assert (words in found) if words else not found


@pytest.mark.parametrize(
    "line",
    [
        ("MasterLog", IDLE[1]),
        ("StartLog", "No resources have been claimed for 7 seconds"),
        ("StartLog", f"slot1: {IDLE[1]}"),
        ("StartLog", f"{IDLE[1]} says a job"),
        ("StartLog", f"x {DRAIN[2][1]}"),
    ],
)
def test_other_words_are_no_reason(line: tuple[str, str]) -> None:
    assert after(line).text == ""


def test_a_reason_of_the_log_is_forgotten_when_the_slot_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(IDLE, ("StartLog", "slot1: Changing state: Unclaimed -> Claimed")).text == ""
    reason = after(IDLE)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 600)
    assert reason.text == ""


def test_an_idle_pilot_that_was_never_in_the_pool_has_not_ended_well(tmp_path: Path) -> None:
    file = tmp_path / "end-reason"
    out = PoolState(False, "slot1@x", "cm", 0.0, problem="cm: no such host")
    after((LOG, out.text()), IDLE, file=file)
    assert file.read_text() == (
        "1 0 idle for 30 min (ACCEPT_IDLE_MINUTES); the slot was never in the pool: cm: no such host"
    )
    for state in (
        PoolState(True, "slot1@x", "cm", 0.0, 0.0, ever=True),
        replace(out, ever=True),
        replace(out, problem=""),
    ):
        after((LOG, state.text()), IDLE, file=file)
        assert file.read_text().startswith("0 0 idle")


def test_what_is_certain_is_not_replaced_by_a_line(tmp_path: Path) -> None:
    file = tmp_path / "end-reason"
    reason = after(IDLE, file=file)
    assert file.read_text() == "0 0 idle for 30 min (ACCEPT_IDLE_MINUTES)"
    reason.set("the pod was deleted\nreally")
    reason.handle_line(*("StartLog", LogLine(IDLE[1])))
    assert reason.text == "the pod was deleted\\nreally"
    assert file.read_text() == "0 1 the pod was deleted\\nreally"
    reason.set("never in the pool", status=1)
    assert file.read_text() == "1 1 never in the pool"


def test_a_deletion_is_told_with_its_cause() -> None:
    assert deletion({"metadata": {}}) is None
    deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {}}
    assert deletion(deleted) == "the pod was deleted"
    cause = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    assert deletion({**deleted, "status": {"conditions": [{"type": "Ready", "status": "True"}, cause]}}) == (
        "the pod was deleted (EvictionByEvictionAPI: evicting)"
    )
