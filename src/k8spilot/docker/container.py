"""Docker's objects: a container, with the moves of model/container_state.py, and a command beside it."""

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
    """The payload container that it was given; one for each slot."""
    command: Command
    stdio: Stdio
    bind: Bind | None = None
    """By it the payload container is its own, until it is removed; a container that will not run has none."""
    subject: logs.Subject = field(default_factory=logs.subject)
    """Job that the log lines about this container name."""
    identifier: str = field(default_factory=lambda: secrets.token_hex(32))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: ContainerState = ContainerState.CREATED
    run: Run | None = None
    """Its command, once that is released."""
    error: str = ""
    """Why it FAILED; HTCondor holds a job with any text here."""
    deferred: int | None = None
    """While it is STARTING, the signal that it gets as soon as it runs: what it gets, and no state of its own."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set in the states of `SETTLED`: what waits for one of them waits for this. Only `_advance` sets it."""
    removed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set in the state REMOVED. Only `_advance` sets it."""
    kept: int = 0
    """Bytes that its request has of the engine's memory."""
    _result: Outcome | None = None
    _lost: PayloadLost | None = None

    @property
    def running(self) -> bool:
        """Docker's State.Running."""
        return self.state in RUNNING

    @property
    def active(self) -> bool:
        """Whether it runs, or is about to."""
        return self.running or self.state is ContainerState.STARTING

    @property
    def paused(self) -> bool:
        """Docker's State.Paused."""
        return self.running and self.payload.state is PayloadState.PAUSED

    @property
    def outcome(self) -> Outcome | None:
        """The result, once there is one; also after the removal, for who waits for it.

        Raises:
            PayloadLost: there never will be.
        """
        if self._lost is not None:
            raise self._lost
        return self._result

    def begin_start(self) -> None:
        """Know that it was told to start."""
        self._advance(ContainerEvent.START)

    def release(self, run: Run) -> None:
        """Know that its command was released just now."""
        self.run = run
        self._advance(ContainerEvent.RELEASE)
        run.ended.add_done_callback(self._end)

    def fail(self, error: PilotError) -> None:
        """End its start with what its job has to be told."""
        self.error = str(error)
        self._advance(ContainerEvent.FAIL)

    def lose(self, reason: PayloadLost) -> None:
        """End it without a result."""
        self._lost = reason
        self._advance(ContainerEvent.LOSE)

    def forsake(self, reason: PayloadLost) -> None:
        """End it without a result, whatever runs in it: nobody would be told of that."""
        self._lost = reason
        self._advance(ContainerEvent.FORSAKE)
        if self.run is not None:
            self.run.forsake()
        else:  # the starter may give the job back now, and it could begin elsewhere
            self._let_go()

    def kill_early(self, number: int) -> None:
        """End it before its command is released, as if signal `number` had ended it."""
        self._result = Outcome.of(number)
        self._advance(ContainerEvent.KILL)
        self._let_go()

    def defer(self, number: int) -> None:
        """Have it get a signal as soon as it runs; of several, SIGKILL goes before all others."""
        if self.deferred != signal.SIGKILL:
            self.deferred = number

    def end_removal(self) -> None:
        """Know that it has given back all that it had."""
        self._advance(ContainerEvent.REMOVE)

    def _let_go(self) -> None:
        """Give the payload container back before the command is released there."""
        if self.bind is not None:
            self.payload.drop(self.bind)

    def _end(self, ended: asyncio.Future[Outcome]) -> None:
        if ended.cancelled() or not self.running:  # it was lost before, since its removal failed
            return
        if (error := ended.exception()) is None:
            self._result = ended.result()
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
    """The request, which its inspection shows again."""
    stdio: Stdio
    identifier: str = field(default_factory=lambda: secrets.token_hex(32))
    session: ExecSession | None = None
    kept: int = 0
    """Bytes that its request has of the engine's memory."""

    @property
    def running(self) -> bool:
        """Whether its command runs."""
        return self.session is not None and not self.session.ended.done()
