"""The state table of a Docker container: each pair of state and event is either a row or an error."""

import itertools

import pytest

from k8spilot.model.container_state import (
    RUNNING,
    SETTLED,
    TRANSITIONS,
    UNRELEASED,
    ContainerEvent,
    ContainerState,
    advance,
)
from k8spilot.model.state_table import IllegalEvent
from tests.unit.state_tables import reachable


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ContainerState, ContainerEvent)))
def test_an_event_is_a_row_of_the_table_or_raises(state: ContainerState, event: ContainerEvent) -> None:
    if event in TRANSITIONS[state]:
        assert advance(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalEvent, match=f"{event.name} cannot happen .* {state.name}$"):
            advance(state, event)


def test_each_state_is_reached_from_created_and_leads_to_removed() -> None:
    assert reachable(TRANSITIONS, ContainerState.CREATED) == set(ContainerState) == set(TRANSITIONS)
    assert all(ContainerState.REMOVED in reachable(TRANSITIONS, state) for state in ContainerState)


def test_each_event_happens_in_some_state() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(ContainerEvent)


def test_a_container_that_runs_ends_before_it_is_removed() -> None:
    assert {state for state, row in TRANSITIONS.items() if ContainerEvent.REMOVE not in row} == {
        *RUNNING,
        ContainerState.REMOVED,
    }


def test_a_container_that_has_settled_can_only_be_removed() -> None:
    for state in SETTLED - {ContainerState.REMOVED}:
        assert TRANSITIONS[state] == {ContainerEvent.REMOVE: ContainerState.REMOVED}


def test_a_container_whose_client_has_gone_never_comes_to_a_result() -> None:
    assert ContainerState.EXITED not in reachable(TRANSITIONS, ContainerState.FORSAKEN)


def test_a_container_runs_only_after_its_start_and_release() -> None:
    for event in (ContainerEvent.START, ContainerEvent.RELEASE):
        without = {
            state: {one: next_ for one, next_ in row.items() if one is not event} for state, row in TRANSITIONS.items()
        }
        assert not reachable(without, ContainerState.CREATED) & RUNNING, event


def test_each_state_is_of_one_group() -> None:
    assert len(UNRELEASED) + len(RUNNING) + len(SETTLED) == len(ContainerState)
