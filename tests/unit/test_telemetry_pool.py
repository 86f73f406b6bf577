"""Events, readiness and metrics that report the pool's view of the slot."""

import pytest

from k8spilot.model.pool_state import PoolState
from k8spilot.telemetry.metrics import Metrics
from k8spilot.telemetry.pool_recorder import PoolRecorder
from tests.unit.test_telemetry import Told, now

JOINING = PoolState(False, "slot1@x", "", 1_800_000_000.0)
OUT = PoolState(False, "slot1@x", "cm", 1_800_000_000.0, problem="cm: no such host")
IN = PoolState(True, "slot1@x", "cm", 1_800_000_100.0, updated=1_800_000_111.0)


async def test_each_change_is_an_event_and_the_first_time_in_the_pool_is_fit() -> None:
    told = Told()
    recorder = PoolRecorder(told.event_recorder)
    for state in (JOINING, OUT, OUT, IN, IN, OUT, IN):
        recorder.handle(state.text())
        await told.all()
    assert await told.all() == [
        ("NotInPool", "Not in the pool: cm: no such host.", 2),
        ("Fit", "All preflight checks passed, and the pool has the slot.", 1),
        ("InPool", "In the pool as slot1@x of cm.", 2),
    ]


async def test_a_slot_is_not_ready_before_the_pool_has_it() -> None:
    recorder = PoolRecorder(Told().event_recorder)
    assert recorder.problem == "HTCondor has not joined the pool yet"
    for state, problem in ((JOINING, "not in the pool: HTCondor is joining it"), (OUT, OUT.sentence), (IN, "")):
        recorder.handle(state.text())
        assert recorder.problem == problem
    recorder.handle("")
    assert recorder.problem
    assert recorder.json() is None


async def test_a_report_that_is_none_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    recorder = PoolRecorder(Told().event_recorder)
    recorder.handle(IN.text())
    recorder.handle('{"in_pool": false}')
    assert recorder.problem == ""
    assert "is ignored" in caplog.text


def test_the_last_update_is_a_metric() -> None:
    text = Metrics().text(now(pool=IN)).decode()
    assert "k8spilot_pool_last_update_timestamp_seconds 1.800000111e+09" in text
    assert "k8spilot_in_pool 1.0" in text
    text = Metrics().text(now(pool=JOINING)).decode()
    assert "k8spilot_pool_last_update_timestamp_seconds 1" not in text
    assert "k8spilot_in_pool 0.0" in text
