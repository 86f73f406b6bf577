"""The job's command in a payload container, from its release to its result."""

import asyncio
import contextlib
import itertools
import logging
import signal
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from k8spilot.common.aio import first_of, is_set, is_set_within, side_by_side
from k8spilot.common.background import Background
from k8spilot.common.errors import PayloadKilled, PayloadLost, PilotError, Refused, first_cause
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.command import Command
from k8spilot.model.outcome import Outcome
from k8spilot.model.payload_state import ALIVE, PayloadEvent, PayloadState
from k8spilot.payload.command.exec_session import ExecSession, launch
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload.disk_watch import DiskWatch
from k8spilot.payload.scrub.scrubber import Scrubber
from k8spilot.payload.state_machine import PayloadMachine
from k8spilot.payload.termination import TerminationObserver
from k8spilot.payload.usage import Traffic, Usage, read_traffic, read_usage
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.process import Process

logger = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTarget:
    """Container of a command."""

    name: str
    identity: str
    """Container id of the runtime."""
    patience: float
    """Seconds to wait for an unavailable API server, to learn how the container ended."""
    before: Usage
    """Usage of the container's earlier jobs."""
    disk: DiskWatch | None = None
    """Watch of the disk that the command uses, which the run closes."""
    report_excess: Callable[[str], object] = lambda _: None
    """Called with a sentence when the command has used more than it may."""


class Run:
    """A command, its container, and its result."""

    def __init__(
        self,
        *,
        channel: Channel,
        pod: OwnPod,
        target: RunTarget,
        stdio: Stdio,
        scrubber: Scrubber,
        machine: PayloadMachine,
        work: Background,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.channel = channel
        self.began = datetime.now(UTC)
        self.running: asyncio.Future[None] = loop.create_future()
        """Done when the command's process runs, or its execution failed."""
        self.ended: asyncio.Future[Outcome] = loop.create_future()
        """Result; raises PayloadLost if there is none."""
        self.abandoned = asyncio.Event()
        """Set when no client needs the output any more."""
        self._scrubber = scrubber
        self._target = target
        self._stdio = stdio
        self._machine = machine
        self._work = work
        self._disk = target.disk
        self._signalled = asyncio.Event()
        """Set when a client has sent a signal."""
        self._excess = ""
        """Sentence about the disk that the job has used beyond its limits."""
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        self._last_usage = Usage()
        self._traffic = read_traffic()
        self._termination = TerminationObserver(pod, target.name, target.identity, target.patience)

    def __repr__(self) -> str:
        return f"<Run in {self._target.name} {'ended' if self.ended.done() else self._machine.state.name}>"

    @property
    def usage(self) -> Usage:
        """Present usage, or that at the end."""
        return self._last_usage if self._has_exited else self._read_usage()

    def _read_usage(self) -> Usage:
        return read_usage(self.channel.cgroup).since(self._target.before)

    @property
    def traffic(self) -> Traffic:
        """Bytes over the pod's network since the run began."""
        now = read_traffic()
        return Traffic(now.received - self._traffic.received, now.sent - self._traffic.sent)

    @property
    def exceeds(self) -> bool:
        """Whether the job has used more disk than it may."""
        return bool(self._excess)

    @property
    def is_clean(self) -> bool:
        """Whether the job has ended by itself or by a signal, and left no process: the container is as it was before.

        A container that was out of memory, or was to be killed, is not.
        """
        has_result = self.ended.done() and not self.ended.cancelled() and self.ended.exception() is None
        if not has_result or self.channel.killed or not self.channel.still_open():
            return False
        return is_set(self.channel.swept) and not self.ended.result().out_of_memory and not self.exceeds

    async def begun(self) -> None:
        """Wait until the command's process runs, or its execution failed.

        Raises:
            PayloadLost: the container ended before that.
        """
        await first_of(self.running, self.ended)
        if not self.running.done():
            await self.ended

    async def follow(self, command: Command) -> None:
        """Release `command`, carry its output, and set its result in `ended`."""
        try:
            outcome = await self._follow(command)
        except Exception as error:
            cause = first_cause(error) if isinstance(error, ExceptionGroup) else error
            self._machine.advance(PayloadEvent.LOSE)
            if isinstance(cause, PilotError):
                logger.warning("%s", cause)
                self._end(cause)
                return
            self._end(PayloadLost(f"the pilot failed to follow the job ({cause!r}); the job goes back to the queue"))
            raise
        finally:
            if self._disk is not None:
                self._disk.close()
        self._machine.advance(PayloadEvent.SETTLED)
        self.ended.set_result(outcome)
        logger.info("The job ended with code %d.", outcome.code)

    def forsake(self) -> None:
        """End the container because HTCondor's client has died: the job must not continue, and its end is no result."""
        logger.warning(
            "The client that waited for the job has disconnected; ending the job, which goes back to the queue."
        )
        self.channel.kill()

    def kill(self, number: int) -> None:
        """Send a signal to the job's own process. SIGKILL reaches all of the job's processes at its end.

        Raises:
            Refused: the job does not run.
            PayloadLost: the container is gone.
        """
        self._check(ALIVE, "no job runs in it")
        self._signalled.set()
        self._kill(number)

    def _kill(self, number: int) -> None:
        if number == signal.SIGKILL:
            self._work.start(self._insist, "kill")
        if self._machine.state is not PayloadState.ENDING:
            self.channel.signal(number)

    def pause(self) -> None:
        """Stop all processes of the job.

        Raises:
            Refused: the job does not run, or is paused.
        """
        self._check({PayloadState.RUNNING}, "only a running job can be paused")
        self.channel.pause()
        self._machine.advance(PayloadEvent.PAUSE)
        if self._disk is not None:
            self._disk.pause()

    def resume(self) -> None:
        """Resume a paused job.

        Raises:
            Refused: the job is not paused.
        """
        self._check({PayloadState.PAUSED}, "it is not paused, and has nothing to resume")
        self.channel.resume()
        self._machine.advance(PayloadEvent.RESUME)
        if self._disk is not None:
            self._disk.resume()

    def execute(self, command: Command, stdio: Stdio) -> ExecSession:
        """Start another command beside the job, with the given streams, and return its session.

        Raises:
            Refused: the job does not run.
        """
        self._check({PayloadState.RUNNING}, "commands run only beside a running job")
        session = ExecSession(self.channel, next(self._numbers), command, stdio)
        self._work.start(session.follow, "session")
        return session

    def _check(self, states: AbstractSet[PayloadState], why: str) -> None:
        """Raise Refused in other states. After its end the state may be that of the next job."""
        if self.ended.done() or self._machine.state not in states:
            raise Refused(f"payload container {self._machine.name} is {self._machine.state.value}; {why}")

    async def _insist(self) -> None:
        """End the container if payload-init does not kill its job: the job may have stopped payload-init."""
        _, waiting = await asyncio.wait([self.ended], timeout=_SWEEP_SECONDS)
        if waiting and not self._has_exited:
            logger.warning("%r does not end its job; killing it.", self.channel)
            self.channel.kill()

    @property
    def _has_exited(self) -> bool:
        return self._process is not None and self._process.exited.done()

    async def _follow(self, command: Command) -> Outcome:
        channel = self.channel
        with self._stdio:
            process = self._process = await launch(channel, 0, command, self._stdio)
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._stdio.pump(), name="stdio")
                await first_of(process.started, process.exited, channel.closed)
                if is_set(process.started):
                    self._machine.advance(PayloadEvent.STARTED)
                    self.running.set_result(None)
                watching = self._work.start(self._watch_disk, "disk")
                await first_of(process.exited, channel.closed)
                watching.cancel()
                self._last_usage = self._read_usage()
                outcome = self._reported(process) if is_set(process.exited) else await self._find_end()
                self._machine.advance(PayloadEvent.EXIT)
                await self._sweep()
                is_held = await self._settle_disk()
                await self._unlock()
                await self._drain(pump)
        return replace(outcome, excess="" if is_held else self._excess)

    async def _watch_disk(self) -> None:
        """End the job when it has used more disk than it may."""
        if self._disk is not None:
            self._exceed(await self._disk.until_exceeded())
            with contextlib.suppress(PilotError):
                self._kill(signal.SIGKILL)

    def _exceed(self, words: str) -> None:
        self._excess = words
        if words:
            self._signalled.clear()
            logger.warning("Ending the job, which will be held: %s.", words)
            self._target.report_excess(words)

    async def _settle_disk(self) -> bool:
        """Wait until HTCondor holds a job that has used more disk than it may; return whether it does."""
        if self._disk is None:
            return False
        if not self._excess:
            self._exceed(await self._disk.measure_at_end())
        if not self._excess:
            return False
        with contextlib.suppress(PilotError):  # /tmp and /var/tmp, before the kubelet measures them
            await self._scrubber.before_files()
        return await is_set_within(self._signalled, self._disk.hold_seconds)

    def _reported(self, process: Process) -> Outcome:
        return Outcome.of(process.exited.result(), out_of_memory=bool(self._last_usage.oom_kills))

    async def _sweep(self) -> None:
        """Kill the processes that the job left, and with them the last writers of its output."""
        channel = self.channel
        with contextlib.suppress(PayloadLost):
            channel.sweep()
            await first_of(channel.swept, channel.closed, seconds=_SWEEP_SECONDS)
        if channel.still_open() and not channel.swept.done():
            logger.warning("The processes that the job left do not end; killing its container.")
            channel.kill()
            await asyncio.wait([channel.closed], timeout=_SWEEP_SECONDS)

    async def _unlock(self) -> None:
        """Make locked output readable for HTCondor. A result that lacks some of it is better than none."""
        try:
            await self._scrubber.unlock(self.channel)
        except PilotError as error:
            logger.warning("%s.", error)

    async def _drain(self, pump: asyncio.Task[None]) -> None:
        """Wait for the rest of the output while a client reads it. Its writers are dead by now."""
        async with side_by_side(self.abandoned.wait()) as (abandoned,):
            while not pump.done() and not abandoned.done():
                before = self._stdio.carried
                await first_of(pump, abandoned, seconds=_DRAIN_SECONDS)
                if not pump.done() and self._stdio.carried == before and not self._stdio.writing:
                    logger.warning("The job's output does not end with its processes; closing it.")
                    break
        pump.cancel()

    async def _find_end(self) -> Outcome:
        """Return the outcome of a container that ended without payload-init's report.

        Only two such ends belong to the job: out of memory, and the pilot's own kill of a job that uses too much disk.

        Raises:
            PayloadKilled: nobody but the job can have killed payload-init.
            PayloadLost: the container ended for another reason.
        """
        deadly_signals = self.channel.leash.deadly_signals
        end = await self._termination.find(self.abandoned, self._last_usage.oom_kills, deadly_signals)
        if end.out_of_memory:
            return Outcome.killed_for_memory()
        if self._excess:
            return Outcome.of(signal.SIGKILL)
        if end.killed_by and not self.channel.killed:
            raise PayloadKilled(
                f"the payload container's first process was ended by signal {end.killed_by} under the job, which has "
                "no result (does it signal all processes of its user?)",
                end.killed_by,
            )
        raise PayloadLost(
            f"the payload container ended under the job ({end.reason}), which has no result; it goes back to the queue"
        )

    def _end(self, error: Exception) -> None:
        self.ended.set_exception(error)
        self.ended.exception()  # mark it as retrieved: there may be no waiter
