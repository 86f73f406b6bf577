"""States of a Docker container of HTCondor, as one table.

    CREATED --start--> STARTING --release--> RUNNING --exit--> EXITED
       | kill             | kill                | forsake         (lose: LOST, fail: FAILED)
       +----> KILLED <----+                     v
       | forsake, lose    | forsake, lose    FORSAKEN --exit, lose--> LOST
       +-----> LOST <-----+
                          | fail
                          +----> FAILED

`remove` leads from each state but `RUNNING` and `FORSAKEN` to `REMOVED`: a removal first ends the running job, and
the waiting clients get its result. So a removal in progress is not a state: as in Docker (State.RemovalInProgress of
moby's container/state.go), it accompanies the states, and docker/store.py has a list of such containers (`leaving`).

A container does not exist before its image is bound (docker/creation.py). If a signal ended the bind, it is in `KILLED`
from the beginning. If the bind failed and the job is not at fault, it is lost from the beginning.

A lost container of HTCondor's is returned before it ends: HTCondor is made to vacate the job, and its SIGKILL leads to
`KILLED`, or from `RUNNING` to `EXITED`. Without a SIGKILL within ten seconds the container is `LOST`. The return is not
a state either: it accompanies `CREATED`, `STARTING` or `RUNNING` (`Container.is_returning` in docker/container.py). In
that time a starter whose `docker start` has ended asks for the job's result, and clients can attach, inspect or remove.
They all get the answer of the state in which the container was lost. So a state for the return would be needed three
times, or with a note of the state before.

A pause is a state of the payload container (model/payload_state.py) alone: a copy here could differ.
"""

from enum import Enum
from typing import Final

from k8spilot.model.state_table import next_state


class ContainerState(Enum):
    """The state of a container."""

    CREATED = "created"
    """Its image is bound; its start was not requested."""
    STARTING = "starting"
    """Its start was requested; its command has not been released."""
    RUNNING = "running"
    """Its command has been released, and has no result yet."""
    FORSAKEN = "forsaken"
    """As RUNNING, but the client that waited for the result has died: it is being ended, and has no result."""
    EXITED = "exited"
    """The result of its command is final."""
    KILLED = "killed"
    """A signal ended it before its command was released; its result is that of the signal."""
    FAILED = "failed"
    """The start failed, or the job ended its own container, for a reason that the job's owner gets."""
    LOST = "lost"
    """Without a result: the job goes back to the queue."""
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


TRANSITIONS: Final[dict[ContainerState, dict[ContainerEvent, ContainerState]]] = {
    ContainerState.CREATED: {
        ContainerEvent.START: ContainerState.STARTING,
        ContainerEvent.KILL: ContainerState.KILLED,
        ContainerEvent.LOSE: ContainerState.LOST,
        ContainerEvent.FORSAKE: ContainerState.LOST,
        ContainerEvent.REMOVE: ContainerState.REMOVED,
    },
    ContainerState.STARTING: {
        ContainerEvent.RELEASE: ContainerState.RUNNING,
        ContainerEvent.KILL: ContainerState.KILLED,
        ContainerEvent.FAIL: ContainerState.FAILED,
        ContainerEvent.LOSE: ContainerState.LOST,
        ContainerEvent.FORSAKE: ContainerState.LOST,
        ContainerEvent.REMOVE: ContainerState.REMOVED,
    },
    ContainerState.RUNNING: {
        ContainerEvent.EXIT: ContainerState.EXITED,
        ContainerEvent.FAIL: ContainerState.FAILED,
        ContainerEvent.LOSE: ContainerState.LOST,
        ContainerEvent.FORSAKE: ContainerState.FORSAKEN,
    },
    ContainerState.FORSAKEN: {
        ContainerEvent.FORSAKE: ContainerState.FORSAKEN,
        ContainerEvent.EXIT: ContainerState.LOST,
        ContainerEvent.LOSE: ContainerState.LOST,
    },
    ContainerState.EXITED: {ContainerEvent.REMOVE: ContainerState.REMOVED},
    ContainerState.KILLED: {ContainerEvent.REMOVE: ContainerState.REMOVED},
    ContainerState.FAILED: {ContainerEvent.REMOVE: ContainerState.REMOVED},
    ContainerState.LOST: {ContainerEvent.REMOVE: ContainerState.REMOVED},
    ContainerState.REMOVED: {},
}

UNRELEASED: Final = frozenset({ContainerState.CREATED, ContainerState.STARTING})
"""Its command has not been released yet, but may be."""
RUNNING: Final = frozenset({ContainerState.RUNNING, ContainerState.FORSAKEN})
"""Docker's State.Running."""
SETTLED: Final = frozenset(ContainerState) - UNRELEASED - RUNNING
"""Final states before the removal."""


def advance(state: ContainerState, event: ContainerEvent) -> ContainerState:
    """Return the state after `event` in `state`.

    Raises:
        IllegalEvent: the table has no such row.
    """
    return next_state(TRANSITIONS, state, event, "a container")
