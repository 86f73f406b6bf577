"""The states of a Docker container that HTCondor made, as one table.

    CREATED --start--> STARTING --release--> RUNNING --exit--> EXITED
       | kill             | kill                | forsake         (lose: LOST)
       +----> KILLED <----+                     v
       | forsake, lose    | forsake, lose    FORSAKEN --exit, lose--> LOST
       +-----> LOST <-----+
                          | fail
                          +----> FAILED

`remove` leads from each state but `RUNNING` and `FORSAKEN` to `REMOVED`: a removal first ends the job that runs, and
who waits for its result gets it. So a removal under way is no state: as in Docker (State.RemovalInProgress of moby's
container/state.go), it goes on beside them, and docker/store.py keeps a list of it (`leaving`).

A container does not exist before its image is bound (docker/create/handler.py). One whose bind a signal has ended is
made in `KILLED`, and one whose bind failed without a fault of its job in `LOST`. A pause is the payload container's
state (model/payload_state.py), and is asked for there: kept here as well, the two could differ.
"""

from enum import Enum
from typing import Final

from k8spilot.model.payload_state import IllegalEvent


class ContainerState(Enum):
    """The state of a container."""

    CREATED = "created"
    """Its image is bound; it was not told to start."""
    STARTING = "starting"
    """It was told to start; its command has not been released."""
    RUNNING = "running"
    """Its command has been released, and has no result yet."""
    FORSAKEN = "forsaken"
    """As RUNNING, and the client that waits for the result has gone: it is being ended, and its end is no result."""
    EXITED = "exited"
    """The result of its command is final."""
    KILLED = "killed"
    """A signal has ended it before its command was released; the result is that of the signal."""
    FAILED = "failed"
    """It could not be started, for a reason that the job has to be told."""
    LOST = "lost"
    """It has no result: the job goes back to the queue."""
    REMOVED = "removed"


class ContainerEvent(Enum):
    """An event in the life of a container."""

    START = "start"
    RELEASE = "release"
    EXIT = "exit"
    KILL = "kill"
    FAIL = "fail"
    LOSE = "lose"
    FORSAKE = "forsake"
    REMOVE = "remove"


_S, _E = ContainerState, ContainerEvent

TRANSITIONS: Final[dict[ContainerState, dict[ContainerEvent, ContainerState]]] = {
    _S.CREATED: {
        _E.START: _S.STARTING,
        _E.KILL: _S.KILLED,
        _E.LOSE: _S.LOST,
        _E.FORSAKE: _S.LOST,
        _E.REMOVE: _S.REMOVED,
    },
    _S.STARTING: {
        _E.RELEASE: _S.RUNNING,
        _E.KILL: _S.KILLED,
        _E.FAIL: _S.FAILED,
        _E.LOSE: _S.LOST,
        _E.FORSAKE: _S.LOST,
        _E.REMOVE: _S.REMOVED,
    },
    _S.RUNNING: {_E.EXIT: _S.EXITED, _E.LOSE: _S.LOST, _E.FORSAKE: _S.FORSAKEN},
    _S.FORSAKEN: {_E.FORSAKE: _S.FORSAKEN, _E.EXIT: _S.LOST, _E.LOSE: _S.LOST},
    _S.EXITED: {_E.REMOVE: _S.REMOVED},
    _S.KILLED: {_E.REMOVE: _S.REMOVED},
    _S.FAILED: {_E.REMOVE: _S.REMOVED},
    _S.LOST: {_E.REMOVE: _S.REMOVED},
    _S.REMOVED: {},
}

UNRELEASED: Final = frozenset({_S.CREATED, _S.STARTING})
"""Its command has not been released, and may be yet."""
RUNNING: Final = frozenset({_S.RUNNING, _S.FORSAKEN})
"""Docker's State.Running."""
SETTLED: Final = frozenset(_S) - UNRELEASED - RUNNING
"""Nothing more happens to it but its removal."""


def advance(state: ContainerState, event: ContainerEvent) -> ContainerState:
    """The state that `event` leads to from `state`.

    Raises:
        IllegalEvent: the table has no such row.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalEvent(f"{event.name} cannot happen to a container that is {state.name}") from None
