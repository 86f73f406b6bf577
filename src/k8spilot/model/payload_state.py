"""The life of a payload container, as one table.

A payload container takes one job after another. Every change of its state is a row of `TRANSITIONS`;
what is not there cannot happen, and `advance` raises. Who acts on it is payload/container.py.

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


class PayloadState(Enum):
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


class PayloadEvent(Enum):
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


TRANSITIONS: Final[dict[PayloadState, dict[PayloadEvent, PayloadState]]] = {
    PayloadState.IDLE: {PayloadEvent.BIND: PayloadState.BINDING},
    PayloadState.BINDING: {
        PayloadEvent.BOUND: PayloadState.BOUND,
        PayloadEvent.FAIL: PayloadState.FAILED,
        PayloadEvent.REMOVE: PayloadState.IDLE,
    },
    PayloadState.BOUND: {
        PayloadEvent.START: PayloadState.STARTING,
        PayloadEvent.LOSE: PayloadState.LOST,
        PayloadEvent.REMOVE: PayloadState.IDLE,
    },
    PayloadState.STARTING: {
        PayloadEvent.STARTED: PayloadState.RUNNING,
        PayloadEvent.EXIT: PayloadState.ENDING,
        PayloadEvent.LOSE: PayloadState.LOST,
    },
    PayloadState.RUNNING: {
        PayloadEvent.PAUSE: PayloadState.PAUSED,
        PayloadEvent.EXIT: PayloadState.ENDING,
        PayloadEvent.LOSE: PayloadState.LOST,
    },
    PayloadState.PAUSED: {
        PayloadEvent.RESUME: PayloadState.RUNNING,
        PayloadEvent.EXIT: PayloadState.ENDING,
        PayloadEvent.LOSE: PayloadState.LOST,
    },
    PayloadState.ENDING: {PayloadEvent.SETTLED: PayloadState.ENDED, PayloadEvent.LOSE: PayloadState.LOST},
    PayloadState.ENDED: {PayloadEvent.REMOVE: PayloadState.IDLE},
    PayloadState.FAILED: {PayloadEvent.REMOVE: PayloadState.IDLE},
    PayloadState.LOST: {PayloadEvent.REMOVE: PayloadState.IDLE},
}

ALIVE: Final = frozenset({PayloadState.STARTING, PayloadState.RUNNING, PayloadState.PAUSED, PayloadState.ENDING})
"""The job has been released and its result is not final: Docker's "running"."""


class IllegalEvent(Exception):
    """An event came that its state does not know: a fault of ours, never of a job."""


def advance(state: PayloadState, event: PayloadEvent) -> PayloadState:
    """The state that `event` leads to from `state`.

    Raises:
        IllegalEvent: the table has no such row.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalEvent(f"{event.name} cannot happen to a payload container that is {state.name}") from None
