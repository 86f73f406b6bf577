"""The state table: every row, and nothing else."""

import itertools

import pytest

from k8spilot.model.payload_state import ALIVE, TRANSITIONS, IllegalEvent, PayloadEvent, PayloadState, advance

ROWS = {
    ("IDLE", "BIND"): "BINDING",
    ("BINDING", "BOUND"): "BOUND",
    ("BINDING", "FAIL"): "FAILED",
    ("BINDING", "REMOVE"): "IDLE",
    ("BOUND", "START"): "STARTING",
    ("BOUND", "LOSE"): "LOST",
    ("BOUND", "REMOVE"): "IDLE",
    ("STARTING", "STARTED"): "RUNNING",
    ("STARTING", "EXIT"): "ENDING",
    ("STARTING", "LOSE"): "LOST",
    ("RUNNING", "EXIT"): "ENDING",
    ("RUNNING", "LOSE"): "LOST",
    ("RUNNING", "PAUSE"): "PAUSED",
    ("PAUSED", "RESUME"): "RUNNING",
    ("PAUSED", "EXIT"): "ENDING",
    ("PAUSED", "LOSE"): "LOST",
    ("ENDING", "SETTLED"): "ENDED",
    ("ENDING", "LOSE"): "LOST",
    ("ENDED", "REMOVE"): "IDLE",
    ("FAILED", "REMOVE"): "IDLE",
    ("LOST", "REMOVE"): "IDLE",
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PayloadState, PayloadEvent)))
def test_an_event_leads_where_the_table_says_or_raises(state: PayloadState, event: PayloadEvent) -> None:
    expected = ROWS.get((state.name, event.name))
    if expected is None:
        with pytest.raises(IllegalEvent, match=f"{event.name} cannot happen .* {state.name}"):
            advance(state, event)
    else:
        assert advance(state, event) is PayloadState[expected]


def test_every_state_is_reached_and_left() -> None:
    assert {target for row in TRANSITIONS.values() for target in row.values()} == set(PayloadState)
    assert set(TRANSITIONS) == set(PayloadState)


def test_a_job_that_is_alive_cannot_be_removed_before_its_end() -> None:
    assert all(PayloadEvent.REMOVE not in TRANSITIONS[state] for state in ALIVE)


def test_a_lost_job_never_comes_to_a_result() -> None:
    assert TRANSITIONS[PayloadState.LOST] == {PayloadEvent.REMOVE: PayloadState.IDLE}
