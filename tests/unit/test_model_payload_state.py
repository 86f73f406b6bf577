"""The state table of the payload container: each pair of state and event is either a row or an error."""

import itertools

import pytest

from k8spilot.model.payload_state import (
    ALIVE,
    TRANSITIONS,
    UNCLAIMED,
    UNRELEASED,
    PayloadEvent,
    PayloadState,
    advance,
)
from k8spilot.model.state_table import IllegalEvent
from tests.unit.state_tables import reachable


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PayloadState, PayloadEvent)))
def test_an_event_is_a_row_of_the_table_or_raises(state: PayloadState, event: PayloadEvent) -> None:
    if event in TRANSITIONS[state]:
        assert advance(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalEvent, match=f"{event.name} cannot happen .* {state.name}$"):
            advance(state, event)


def test_each_state_is_reached_from_idle_and_leads_back_to_it() -> None:
    assert reachable(TRANSITIONS, PayloadState.IDLE) == set(PayloadState) == set(TRANSITIONS)
    assert all(PayloadState.IDLE in reachable(TRANSITIONS, state) for state in PayloadState)


def test_each_event_happens_in_some_state() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(PayloadEvent)


def test_a_job_that_is_alive_cannot_be_removed_and_each_other_can() -> None:
    removable = {state for state, row in TRANSITIONS.items() if row.get(PayloadEvent.REMOVE) is PayloadState.IDLE}
    assert removable == set(PayloadState) - ALIVE - {PayloadState.IDLE}


def test_a_job_is_released_only_after_its_claim_a_bind_and_the_preparation() -> None:
    """No way leads to a job that is alive past one of these events."""
    for event in (PayloadEvent.CLAIM, PayloadEvent.BOUND, PayloadEvent.PREPARE, PayloadEvent.RELEASE):
        without = {
            state: {one: next_ for one, next_ in row.items() if one is not event} for state, row in TRANSITIONS.items()
        }
        assert not reachable(without, PayloadState.IDLE) & ALIVE, event


def test_only_a_bind_that_nobody_has_claimed_can_be_claimed() -> None:
    assert {state for state, row in TRANSITIONS.items() if PayloadEvent.CLAIM in row} == UNCLAIMED
    assert all(TRANSITIONS[state][PayloadEvent.CLAIM] in UNRELEASED for state in UNCLAIMED)


def test_a_lost_job_never_comes_to_a_result() -> None:
    assert TRANSITIONS[PayloadState.LOST] == {PayloadEvent.REMOVE: PayloadState.IDLE}


def test_the_groups_of_states_have_none_in_common() -> None:
    assert len(UNCLAIMED | UNRELEASED | ALIVE) == len(UNCLAIMED) + len(UNRELEASED) + len(ALIVE)
