"""Docker's objects: a container, with the transitions of model/container_state.py, and a command beside it."""

import asyncio
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from k8spilot.common import logs
from k8spilot.common.errors import PayloadKilled, PayloadLost, PilotError
from k8spilot.docker.create_request.specification import Specification
from k8spilot.model.command import Command
from k8spilot.model.container_state import RUNNING, SETTLED, ContainerEvent, ContainerState, advance
from k8spilot.model.image import Image
from k8spilot.model.outcome import Outcome
from k8spilot.model.payload_state import PayloadState
from k8spilot.model.state_table import IllegalEvent
from k8spilot.payload.binding.bind import Bind
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload.run import Run


@dataclass(slots=True, kw_only=True)
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
    signalled: bool = False
    """Whether a client has requested its end, or sent it another signal. It is a message, as `deferred`: the container
    may run on. But its end is then not counted against the job or the slot. Only `record_signal` sets it."""
    verdict: Callable[[PayloadKilled], PilotError | None] | None = None
    """Returns the reason to hold a job whose payload-init was killed; None to let it run again."""
    returner: Callable[[], None] | None = None
    """Makes HTCondor vacate the job when the container is lost; None if that is not possible, or has been tried."""
    is_returning: bool = False
    """Whether the container is lost and HTCondor vacates its job. The state stays the same meanwhile
    (model/container_state.py has the reason). Only `lose`, `end_return` and `kill_lost` set it."""
    loss: PayloadLost | None = None
    """Reason why its command has no result."""
    _result: Outcome | None = None
    """Result of its command, or of the signal that ended it."""

    def __repr__(self) -> str:
        return f"<Container {self.name} {self.state.name}{', returning' if self.is_returning else ''}>"

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
        if self.loss is not None and self._result is None and not self.is_returning:
            raise self.loss
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
        """End it without a result: at once, or when HTCondor has vacated its job."""
        self.loss, self.is_returning = reason, True
        if self.returner is None or self.signalled:
            self.end_return()
        else:
            returner, self.returner = self.returner, None
            returner()

    def end_return(self) -> None:
        """End a lost container that HTCondor has not killed."""
        if self.is_returning:
            self.is_returning = False
            self._advance(ContainerEvent.LOSE)

    def kill_lost(self, number: int) -> None:
        """End a lost container as HTCondor requests: HTCondor vacates its job, and does not take this for its end.

        Raises:
            IllegalEvent: the container is not lost, or its return has ended.
        """
        if not self.is_returning:
            raise IllegalEvent(f"a container that is {self.state.name} and is not returned cannot be killed as lost")
        self.is_returning, self._result = False, Outcome.of(number)
        is_released = self.state is ContainerState.RUNNING
        self._advance(ContainerEvent.EXIT if is_released else ContainerEvent.KILL)
        if not is_released:
            self._let_go()

    def forsake(self, reason: PayloadLost) -> None:
        """End it without a result, whatever runs in it, because no client would receive a result."""
        if self.is_returning:
            self.end_return()
            return
        self.loss = reason
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

    def record_signal(self) -> None:
        """Record that a client has requested its end, or sent it another signal."""
        self.signalled = True

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
            if self.state is not ContainerState.FORSAKEN:
                self._result = ended.result()
            self.error = ended.result().excess
            self._advance(ContainerEvent.EXIT)
        elif self._is_held(error):
            self._advance(ContainerEvent.FAIL)
        elif self.state is ContainerState.FORSAKEN:
            self._advance(ContainerEvent.LOSE)
        else:
            self.lose(error if isinstance(error, PayloadLost) else PayloadLost(str(error)))

    def _is_held(self, error: BaseException) -> bool:
        """Return whether HTCondor is to hold the job for the end of its container."""
        if self.verdict is None or self.signalled or self.state is not ContainerState.RUNNING:
            return False
        reason = self.verdict(error) if isinstance(error, PayloadKilled) else None
        self.error = "" if reason is None else str(reason)
        return reason is not None

    def _advance(self, event: ContainerEvent) -> None:
        self.state = advance(self.state, event)
        if self.state in SETTLED:
            self.settled.set()
        if self.state is ContainerState.REMOVED:
            self.removed.set()


@dataclass(slots=True, kw_only=True)
class Execution:
    """One `docker exec`."""

    container: Container
    command: Command
    body: Mapping[str, Any]
    """The request, which its inspection shows again."""
    stdio: Stdio
    identifier: str = field(default_factory=lambda: secrets.token_hex(32))
    session: ExecSession | None = None
    kept: int = 0
    """Bytes of the engine's memory that its request occupies."""

    def __repr__(self) -> str:
        return f"<Execution {self.identifier[:12]} in {self.container.name}{', running' if self.running else ''}>"

    @property
    def running(self) -> bool:
        """Whether its command runs."""
        return self.session is not None and not self.session.ended.done()
