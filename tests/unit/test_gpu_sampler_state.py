"""The state table of the connection to the GPU sampler: each pair of state and event is either a row or an error."""

import itertools

import pytest

from k8spilot.gpu.monitoring.sampler_state import TRANSITIONS, Sampler, SamplerEvent, SamplerState
from k8spilot.model.state_table import IllegalEvent
from tests.unit.state_tables import reachable

ACCEPT, FIGURES, FAULTS, DISCONNECT = SamplerEvent


def after(*events: SamplerEvent) -> Sampler:
    """A sampler after these events, at 1 s, 2 s, ..."""
    sampler = Sampler()
    for now, event in enumerate(events, 1):
        sampler.handle(event, float(now))
    return sampler


@pytest.mark.parametrize(("state", "event"), list(itertools.product(SamplerState, SamplerEvent)))
def test_an_event_of_the_sampler_is_a_row_of_the_table_or_raises(state: SamplerState, event: SamplerEvent) -> None:
    sampler = Sampler()
    sampler.state = state
    if event in TRANSITIONS[state]:
        assert sampler.handle(event, 1.0) == (TRANSITIONS[state][event] is not state)
        assert sampler.state is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalEvent, match=f"{event.name} cannot happen .* {state.name}$"):
            sampler.handle(event, 1.0)


def test_each_state_of_the_sampler_is_reached_and_ends_with_its_connection() -> None:
    assert reachable(TRANSITIONS, SamplerState.AWAY) == set(SamplerState) == set(TRANSITIONS)
    connected = set(SamplerState) - {SamplerState.AWAY}
    assert {state for state, row in TRANSITIONS.items() if row.get(DISCONNECT) is SamplerState.AWAY} == connected


def test_faults_count_from_the_first_one_and_end_with_figures_or_with_the_connection() -> None:
    assert after(ACCEPT, FAULTS, FAULTS, FAULTS).faulty_seconds(10.0) == 8.0
    assert after(ACCEPT, FAULTS, FIGURES, FAULTS).faulty_seconds(10.0) == 6.0
    assert after(ACCEPT, FAULTS, FIGURES).faulty_seconds(10.0) == 0.0
    assert after(ACCEPT, FAULTS, DISCONNECT, ACCEPT).faulty_seconds(10.0) == 0.0


def test_the_fault_of_one_container_is_not_that_of_the_next() -> None:
    sampler = after(ACCEPT, DISCONNECT)
    sampler.fault = "all its devices are lost"
    assert sampler.take_fault() == "all its devices are lost"
    assert sampler.take_fault() == ""
