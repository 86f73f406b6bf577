"""Docker's objects: a container, with the transitions of model/container_state.py, and a command beside it."""

import asyncio
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from k8spilot.common import logs
from k8spilot.common.errors import PayloadLost, PilotError
from k8spilot.docker.create.specification import Specification
from k8spilot.model.command import Command
from k8spilot.model.container_state import RUNNING, SETTLED, ContainerEvent, ContainerState, advance
from k8spilot.model.image import Image
from k8spilot.model.outcome import Outcome
from k8spilot.model.payload_state import PayloadState
from k8spilot.payload.bind import Bind
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload.exec_session import ExecSession
from k8spilot.payload.run import Run
from k8spilot.payload.stdio import Stdio


@dataclass(slots=True)
class Container:
    """One `docker create`, whose states are in model/container_state.py."""

    name: str
    image: Image
    specification: Specification
    payload: PayloadContainer
    """Payload container that runs it; one for each slot."""
    command: Command
    stdio: Stdio
    bind: Bind | None = None
    """Bind that makes it the owner of the payload container until its removal; None for a container that will not
    run."""
    subject: logs.Subject = field(default_factory=logs.subject)
    """Subject of its log lines: its job."""
    identifier: str = field(default_factory=lambda: secrets.token_hex(32))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: ContainerState = ContainerState.CREATED
    run: Run | None = None
    """Run of its command, after the release."""
    error: str = ""
    """Reason of the state FAILED, or why a job that has run is to be held. HTCondor holds a job with any text here."""
    deferred: int | None = None
    """Signal for a container in STARTING, sent as soon as it runs. It is a message to the container, and not a state of
    it."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set in the states of `SETTLED`, for waiters. Only `_advance` sets it."""
    removed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set in the state REMOVED. Only `_advance` sets it."""
    kept: int = 0
    """Bytes of the engine's memory that its request occupies."""
    _result: Outcome | None = None
    _lost: PayloadLost | None = None

    @property
    def running(self) -> bool:
        """Docker's State.Running."""
        return self.state in RUNNING

    @property
    def active(self) -> bool:
        """Whether it runs, or is starting."""
        return self.running or self.state is ContainerState.STARTING

    @property
    def paused(self) -> bool:
        """Docker's State.Paused."""
        return self.running and self.payload.state is PayloadState.PAUSED

    @property
    def outcome(self) -> Outcome | None:
        """Result, if there is one; also after the removal, for waiters.

        Raises:
            PayloadLost: there will be none.
        """
        if self._lost is not None:
            raise self._lost
        return self._result

    def begin_start(self) -> None:
        """Record that its start was requested."""
        self._advance(ContainerEvent.START)

    def release(self, run: Run) -> None:
        """Record that its command was just released."""
        self.run = run
        self._advance(ContainerEvent.RELEASE)
        run.ended.add_done_callback(self._end)

    def fail(self, error: PilotError) -> None:
        """End its start with an error for its job."""
        self.error = str(error)
        self._advance(ContainerEvent.FAIL)

    def lose(self, reason: PayloadLost) -> None:
        """End it without a result."""
        self._lost = reason
        self._advance(ContainerEvent.LOSE)

    def forsake(self, reason: PayloadLost) -> None:
        """End it without a result, whatever runs in it, because no client would receive a result."""
        self._lost = reason
        self._advance(ContainerEvent.FORSAKE)
        if self.run is not None:
            self.run.forsake()
        else:  # the starter may return the job now, and it could start elsewhere
            self._let_go()

    def kill_early(self, number: int) -> None:
        """End it before its command is released, as if signal `number` had ended it."""
        self._result = Outcome.of(number)
        self._advance(ContainerEvent.KILL)
        self._let_go()

    def defer(self, number: int) -> None:
        """Send it a signal as soon as it runs. Of several signals, SIGKILL has priority."""
        if self.deferred != signal.SIGKILL:
            self.deferred = number

    def end_removal(self) -> None:
        """Record that it has released all its resources."""
        self._advance(ContainerEvent.REMOVE)

    def _let_go(self) -> None:
        """Release the payload container before the command is released there."""
        if self.bind is not None:
            self.payload.drop(self.bind)

    def _end(self, ended: asyncio.Future[Outcome]) -> None:
        if ended.cancelled() or not self.running:  # it was lost before, since its removal failed
            return
        if (error := ended.exception()) is None:
            self._result = ended.result()
            self.error = self._result.excess
            self._advance(ContainerEvent.EXIT)
        else:
            if self._lost is None:
                self._lost = error if isinstance(error, PayloadLost) else PayloadLost(str(error))
            self._advance(ContainerEvent.LOSE)

    def _advance(self, event: ContainerEvent) -> None:
        self.state = advance(self.state, event)
        if self.state in SETTLED:
            self.settled.set()
        if self.state is ContainerState.REMOVED:
            self.removed.set()


@dataclass(slots=True)
class Execution:
    """One `docker exec`."""

    container: Container
    command: Command
    asked: Mapping[str, Any]
    """Request, which its inspection shows again."""
    stdio: Stdio
    identifier: str = field(default_factory=lambda: secrets.token_hex(32))
    session: ExecSession | None = None
    kept: int = 0
    """Bytes of the engine's memory that its request occupies."""

    @property
    def running(self) -> bool:
        """Whether its command runs."""
        return self.session is not None and not self.session.ended.done()
