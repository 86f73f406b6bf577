"""One command in a payload container, from its release to its result."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from k8spilot.errors import PayloadLost, PilotError, first_cause
from k8spilot.kube.pod import container
from k8spilot.kube.watch import OwnPod
from k8spilot.model.command import Command
from k8spilot.model.lifecycle import Event
from k8spilot.model.outcome import Outcome
from k8spilot.payload.stdio import Sink, Stdio
from k8spilot.payload.usage import Traffic, Usage, read_traffic, read_usage
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 30.0
_STATUS_SECONDS: Final = 10.0
"""The kubelet needs about a second to tell how a container ended."""


class Run:
    """A command, the container that it runs in, and what becomes of it."""

    def __init__(self, channel: Channel, pod: OwnPod, name: str, identity: str, sinks: list[Sink]) -> None:
        loop = asyncio.get_running_loop()
        self.channel = channel
        self.began = datetime.now(UTC)
        self.running: asyncio.Future[None] = loop.create_future()
        """Done when the command's process runs, or could not be executed."""
        self.ended: asyncio.Future[Outcome] = loop.create_future()
        """The result; raises PayloadLost when there is none."""
        self.abandoned = asyncio.Event()
        """Set when nobody wants its output any more."""
        self._pod = pod
        self._name = name
        self._identity = identity
        self._stdio = Stdio(sinks)
        self._last_usage = Usage()
        self._traffic = read_traffic()

    @property
    def usage(self) -> Usage:
        """Figures now, or at the end."""
        return self._last_usage if self.channel.exited.done() else read_usage(self.channel.cgroup)

    @property
    def traffic(self) -> Traffic:
        """What went over the pod's network since the run began."""
        now = read_traffic()
        return Traffic(now.received - self._traffic.received, now.sent - self._traffic.sent)

    async def follow(self, command: Command, advance: Callable[[Event], None]) -> None:
        """Release `command`, carry its output, and find its result, which is in `ended` then."""
        try:
            outcome = await self._follow(command, advance)
        except Exception as error:
            cause = first_cause(error) if isinstance(error, ExceptionGroup) else error
            advance(Event.LOSE)
            if isinstance(cause, PilotError):
                logger.warning("%s", cause)
                self._end(cause)
                return
            self._end(PayloadLost(f"the pilot failed to follow the job ({cause!r}); it goes back to the queue"))
            raise
        advance(Event.SETTLED)
        self.ended.set_result(outcome)
        logger.info("The job ended with code %d.", outcome.code)

    def forsake(self) -> None:
        """End the container: nobody is left to be told of the job, so it must not go on, and its end is no result."""
        logger.warning("Whoever waited for the job has gone; the job is ended, and goes back to the queue.")
        self.channel.kill()

    async def insist(self) -> None:
        """End the container if payload-init does not kill its job as it was told: the job may have stopped it."""
        _, waiting = await asyncio.wait([self.ended], timeout=_SWEEP_SECONDS)
        if waiting and not self.channel.exited.done():
            logger.warning("%r does not end its job; it is killed.", self.channel)
            self.channel.kill()

    async def _follow(self, command: Command, advance: Callable[[Event], None]) -> Outcome:
        channel = self.channel
        with self._stdio:
            self._release(command)
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._stdio.pump(), name="stdio")
                await first_of(channel.started, channel.exited, channel.closed)
                if _is_set(channel.started):
                    advance(Event.STARTED)
                    self.running.set_result(None)
                await first_of(channel.exited, channel.closed)
                self._last_usage = read_usage(channel.cgroup)
                outcome = self._reported() if _is_set(channel.exited) else await self._autopsy()
                advance(Event.EXIT)
                await self._sweep()
                await self._drain(pump)
        return outcome

    def _release(self, command: Command) -> None:
        """Hand the command over, in memory that has no name, so that no other job can read it."""
        memory = os.memfd_create("command", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(command.encode())
            self.channel.run((memory, *self._stdio.descriptors))
        finally:
            os.close(memory)
            self._stdio.hand_over()

    def _reported(self) -> Outcome:
        return Outcome.of(self.channel.exited.result(), out_of_memory=bool(self._last_usage.oom_kills))

    async def _sweep(self) -> None:
        """Kill what the job left running, and with it whoever still holds its output."""
        channel = self.channel
        with contextlib.suppress(PayloadLost):
            channel.sweep()
            await first_of(channel.swept, channel.closed, seconds=_SWEEP_SECONDS)
        if channel.still_open() and not channel.swept.done():
            logger.warning("What the job left running does not end; its container is killed.")
            channel.kill()
            await asyncio.wait([channel.closed], timeout=_SWEEP_SECONDS)

    async def _drain(self, pump: asyncio.Task[None]) -> None:
        """Wait for the rest of the output, as long as somebody takes it. Its writers are dead by now."""
        abandoned = asyncio.ensure_future(self.abandoned.wait())
        try:
            while not pump.done() and not self.abandoned.is_set():
                before = self._stdio.carried
                await first_of(pump, abandoned, seconds=_DRAIN_SECONDS)
                if not pump.done() and self._stdio.carried == before and not self._stdio.writing:
                    logger.warning("The job's output does not end with its processes; there is nothing more in it.")
                    break
        finally:
            abandoned.cancel()
            pump.cancel()

    async def _autopsy(self) -> Outcome:
        """payload-init ended without a report. Only one end of a container is the job's own: out of memory."""

        def ended(pod: dict[str, Any]) -> dict[str, Any] | None:
            view = container(pod, self._name)
            found = view.ended if view is not None else None
            return found if found is not None and found.get("containerID") == self._identity else None

        reason = "it was killed"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_SECONDS):
                status = await self._pod.until(ended)
                reason = f"{status.get('reason', 'Error')}, exit code {status.get('exitCode')}"
                if status.get("reason") == "OOMKilled":
                    return Outcome.killed_for_memory()
        raise PayloadLost(
            f"the payload container ended under the job ({reason}), which has no result; it goes back to the queue"
        )

    def _end(self, error: Exception) -> None:
        self.ended.set_exception(error)
        self.ended.exception()  # who waits for it raises it; nobody may


async def first_of(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of `futures` is done, or time is up."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _is_set(future: asyncio.Future[Any]) -> bool:
    return future.done() and not future.cancelled()
