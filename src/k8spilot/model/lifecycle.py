"""The life of a payload container, as one table.

A payload container takes one job after another. Every change of its state is a row of `TRANSITIONS`;
what is not there cannot happen, and `advance` raises. Who acts on it is payload/runner.py.

            bind           bound          start           started
    IDLE ---------> BINDING ------> BOUND ------> STARTING ------> RUNNING
     ^                 |              |              |                |
     |                 | fail         | lose         | exit, lose     | exit, lose
     |   remove        v              v              v                v
     +------------- FAILED          LOST <-------- ENDING <-----------+
     |                                |    lose      |
     |   remove                       |              | settled
     +--------------------------------+              v
     +-------------------------------------------- ENDED
                          remove

A job that runs can be paused and resumed (`PAUSED`); what ends a running job ends a paused one as well.

`IDLE` does not say that the container is clean: it says that no job has it. What makes it clean is the
bind, which never releases a job before the old container is proven gone and its files are (runner.py).
"""

from enum import Enum
from typing import Final


class State(Enum):
    """Where a payload container is."""

    IDLE = "idle"
    """No job has it. It runs the idle image, or still the last job's with nothing of the job in it."""
    BINDING = "binding"
    """The image is being changed to the job's."""
    BOUND = "bound"
    """A fresh container with the job's image runs, and its payload-init waits."""
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    """All processes of the job are stopped (SIGSTOP)."""
    ENDING = "ending"
    """The job's process has ended; what it left is swept away, its output is drained."""
    ENDED = "ended"
    """The result is final."""
    FAILED = "failed"
    """The image could not be bound. No process of the job has run."""
    LOST = "lost"
    """The container went away under the job: there is no result, whatever exit codes are about."""


class Event(Enum):
    """What happens to a payload container."""

    BIND = "bind"
    BOUND = "bound"
    FAIL = "fail"
    START = "start"
    STARTED = "started"
    PAUSE = "pause"
    RESUME = "resume"
    EXIT = "exit"
    SETTLED = "settled"
    LOSE = "lose"
    REMOVE = "remove"


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.IDLE: {Event.BIND: State.BINDING},
    State.BINDING: {Event.BOUND: State.BOUND, Event.FAIL: State.FAILED, Event.REMOVE: State.IDLE},
    State.BOUND: {Event.START: State.STARTING, Event.LOSE: State.LOST, Event.REMOVE: State.IDLE},
    State.STARTING: {Event.STARTED: State.RUNNING, Event.EXIT: State.ENDING, Event.LOSE: State.LOST},
    State.RUNNING: {Event.PAUSE: State.PAUSED, Event.EXIT: State.ENDING, Event.LOSE: State.LOST},
    State.PAUSED: {Event.RESUME: State.RUNNING, Event.EXIT: State.ENDING, Event.LOSE: State.LOST},
    State.ENDING: {Event.SETTLED: State.ENDED, Event.LOSE: State.LOST},
    State.ENDED: {Event.REMOVE: State.IDLE},
    State.FAILED: {Event.REMOVE: State.IDLE},
    State.LOST: {Event.REMOVE: State.IDLE},
}

ALIVE: Final = frozenset({State.STARTING, State.RUNNING, State.PAUSED, State.ENDING})
"""The job has been released and its result is not final: Docker's "running"."""


class IllegalEvent(Exception):
    """An event came that its state does not know: a fault of ours, never of a job."""


def advance(state: State, event: Event) -> State:
    """The state that `event` leads to from `state`.

    Raises:
        IllegalEvent: the table has no such row.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalEvent(f"{event.name} cannot happen to a payload container that is {state.name}") from None
