"""States of a payload container, as one table.

A payload container takes one job after another. Every change of its state is a row of `TRANSITIONS`; `advance` raises
for any other. payload/container.py acts on the states.

    IDLE --pull--> PULLING --bound--> PULLED        no job has claimed the bind yet
                      | fail             |
                      |  '-> PULL_FAILED |          the next claim gets the error
                      | claim            | claim
                      v                  v
                   CLAIMED --bound--> READY --prepare--> PREPARING --release--> STARTING --started--> RUNNING
                      | fail                                | fail                 | exit, lose         | exit, lose
                      +------------> FAILED <---------------+                      v                    v
                                                            LOST <----- lose -- ENDING <----------------+
                                                                                   | settled
                                                                                   v
                                                                                 ENDED

`remove` leads from each state but the four of `ALIVE` to `IDLE`. A running job can be paused and resumed (`PAUSED`);
the events that end a running job end a paused one as well.

`IDLE` does not say that the container is clean: it says that no job has it. `PREPARING` makes it clean: no job is
released before the old container is proven gone and its files are removed.
"""

from enum import Enum
from typing import Final

from k8spilot.model.state_table import next_state


class PayloadState(Enum):
    """The state of a payload container."""

    IDLE = "idle"
    """No job has it. It runs the idle image, or still the last job's with nothing of the job in it."""
    PULLING = "pulling"
    """An image is being bound, and no job has claimed the bind yet."""
    PULLED = "pulled"
    """A container without a job's processes runs the image, and no job has claimed it yet."""
    PULL_FAILED = "pull_failed"
    """The bind failed before a job claimed it. The job that claims it gets the error."""
    CLAIMED = "claimed"
    """An image is being bound for a job."""
    READY = "ready"
    """A container without other jobs' processes runs the job's image, and its payload-init waits."""
    PREPARING = "preparing"
    """The pod's status is to confirm the container, and the files of earlier jobs are removed."""
    STARTING = "starting"
    """The job's command is released; its process is not known to run yet."""
    RUNNING = "running"
    PAUSED = "paused"
    """All processes of the job are stopped (SIGSTOP)."""
    ENDING = "ending"
    """The job's process has ended; the processes that it left are killed, its output is drained."""
    ENDED = "ended"
    """The result is final."""
    FAILED = "failed"
    """The image could not be bound, or the container not be prepared. No process of the job has run."""
    LOST = "lost"
    """The container ended under the job: the job has no result, whatever exit codes there are."""


class PayloadEvent(Enum):
    """An event in the life of a payload container."""

    PULL = "pull"
    """The bind of an image begins."""
    CLAIM = "claim"
    """A job wants the image of the bind."""
    BOUND = "bound"
    """payload-init runs in the image."""
    PREPARE = "prepare"
    """The job is to start."""
    RELEASE = "release"
    """payload-init gets the job's command."""
    FAIL = "fail"
    STARTED = "started"
    PAUSE = "pause"
    RESUME = "resume"
    EXIT = "exit"
    SETTLED = "settled"
    LOSE = "lose"
    REMOVE = "remove"


TRANSITIONS: Final[dict[PayloadState, dict[PayloadEvent, PayloadState]]] = {
    PayloadState.IDLE: {PayloadEvent.PULL: PayloadState.PULLING},
    PayloadState.PULLING: {
        PayloadEvent.CLAIM: PayloadState.CLAIMED,
        PayloadEvent.BOUND: PayloadState.PULLED,
        PayloadEvent.FAIL: PayloadState.PULL_FAILED,
        PayloadEvent.REMOVE: PayloadState.IDLE,
    },
    PayloadState.PULLED: {PayloadEvent.CLAIM: PayloadState.READY, PayloadEvent.REMOVE: PayloadState.IDLE},
    PayloadState.PULL_FAILED: {PayloadEvent.CLAIM: PayloadState.FAILED, PayloadEvent.REMOVE: PayloadState.IDLE},
    PayloadState.CLAIMED: {
        PayloadEvent.BOUND: PayloadState.READY,
        PayloadEvent.FAIL: PayloadState.FAILED,
        PayloadEvent.REMOVE: PayloadState.IDLE,
    },
    PayloadState.READY: {PayloadEvent.PREPARE: PayloadState.PREPARING, PayloadEvent.REMOVE: PayloadState.IDLE},
    PayloadState.PREPARING: {
        PayloadEvent.RELEASE: PayloadState.STARTING,
        PayloadEvent.FAIL: PayloadState.FAILED,
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

UNCLAIMED: Final = frozenset({PayloadState.PULLING, PayloadState.PULLED, PayloadState.PULL_FAILED})
"""A bind has begun that no job has claimed: another bind may take its place."""
UNRELEASED: Final = frozenset(
    {PayloadState.CLAIMED, PayloadState.READY, PayloadState.PREPARING, PayloadState.FAILED},
)
"""A job has the container, and its command has not been released."""
ALIVE: Final = frozenset({PayloadState.STARTING, PayloadState.RUNNING, PayloadState.PAUSED, PayloadState.ENDING})
"""The job was released, and its result is not final: Docker's "running"."""


def advance(state: PayloadState, event: PayloadEvent) -> PayloadState:
    """Return the state after `event` in `state`.

    Raises:
        IllegalEvent: the table has no such row.
    """
    return next_state(TRANSITIONS, state, event, "a payload container")
