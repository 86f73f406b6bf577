"""The rule of all state tables: an event without a row for the state is a defect of k8spilot."""

from collections.abc import Mapping
from enum import Enum


class IllegalEvent(Exception):
    """Raised when a table has no row for an event in a state: a defect of k8spilot, and of no job or sampler."""


def next_state[S: Enum, E: Enum](transitions: Mapping[S, Mapping[E, S]], state: S, event: E, subject: str) -> S:
    """Return the state after `event` in `state`.

    Args:
        transitions: the table: for each state, the events that can happen in it, with the state after each.
        state: the present state.
        event: the event.
        subject: what the states are of, with an article, for the error.

    Raises:
        IllegalEvent: the table has no such row.
    """
    try:
        return transitions[state][event]
    except KeyError:
        raise IllegalEvent(f"{event.name} cannot happen to {subject} that is {state.name}") from None
