"""Properties that any state table can have."""

from collections.abc import Mapping


def reachable[S, E](table: Mapping[S, Mapping[E, S]], start: S) -> set[S]:
    """The states to which events lead from `start`, itself among them."""
    found, new = {start}, {start}
    while new:
        new = {target for state in new for target in table[state].values()} - found
        found |= new
    return found
