"""One payload container and the jobs that run in it, one after another.

The states are those of model/lifecycle.py; this is what happens on the way from one to the next.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from k8spilot.errors import BindError, PayloadLost, PilotError, Refused, first_cause
from k8spilot.kube.pod import container
from k8spilot.kube.watch import OwnPod
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.lifecycle import ALIVE, Event, State, advance
from k8spilot.model.outcome import Outcome
from k8spilot.model.reference import Reference
from k8spilot.payload.binding import Binder, Binding
from k8spilot.payload.stdio import Sink, Stdio
from k8spilot.payload.usage import Traffic, Usage, read_traffic, read_usage
from k8spilot.payload_init.channel import Channel
from k8spilot.sandbox import Scratch

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SWEEP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 30.0
_STATUS_SECONDS: Final = 10.0
"""The kubelet needs about a second to tell how a container ended."""
_UNCLAIMED_SECONDS: Final = 120.0


class PayloadContainer:
    """A slot's payload container."""

    def __init__(
        self,
        name: str,
        pod: OwnPod,
        binder: Binder,
        scratch: Scratch,
        tasks: asyncio.TaskGroup,
        *,
        bind_seconds: float,
        idle_seconds: float,
    ) -> None:
        self.name = name
        self.state = State.IDLE
        self._pod = pod
        self._binder = binder
        self._scratch = scratch
        self._tasks = tasks
        self._bind_seconds = bind_seconds
        self._idle_seconds = idle_seconds
        self._reference: Reference | None = None
        self._claimed = False
        self._binding: asyncio.Future[Binding] | None = None
        self._later: asyncio.Future[None] | None = None
        self._following: asyncio.Future[None] | None = None
        self._run: Run | None = None

    @property
    def run(self) -> "Run":
        """The run that is under way or has ended last.

        Raises:
            Refused: nothing has been started since the last bind.
        """
        if self._run is None:
            raise Refused(f"nothing has been started in payload container {self.name} yet")
        return self._run

    def begin(self, reference: Reference) -> None:
        """Begin to bind an image, in the background. Does nothing if that image is under way already.

        Raises:
            Refused: another job has the container.
        """
        if self.state is State.BINDING and not self._claimed:
            if reference == self._reference and not _failed(self._binding):
                return
            self._free()
        if self.state is not State.IDLE:
            raise Refused(
                f"payload container {self.name} is {self.state.value}: it takes one job at a time; "
                "remove the last one first"
            )
        self._cancel_later()
        self._advance(Event.BIND)
        self._reference = reference
        self._run = None
        self._binding = self._spawn(lambda: self._bind(reference), "bind")
        self._do_later(self._bind_seconds + _UNCLAIMED_SECONDS, "unclaimed bind", self.remove)

    async def bound(self, reference: Reference) -> Image:
        """Wait until `reference`, begun or not, runs; from then on the container is the caller's until `remove`.

        Raises:
            BindError: it cannot; the container is free for the next.
            ClusterError: the API server does not do its part.
            Refused: another job has the container, or this one was removed meanwhile.
        """
        self.begin(reference)
        self._cancel_later()
        self._claimed = True
        binding = self._binding
        assert binding is not None
        try:
            await asyncio.wait([binding])
        except asyncio.CancelledError:  # whoever wanted it has gone
            self._free()
            raise
        if binding.cancelled():
            raise Refused(f"the job was removed while image {reference} was bound")
        if (error := binding.exception()) is not None:
            self._advance(Event.FAIL)
            await self.remove()
            raise error
        return binding.result().image

    async def start(self, command: Command, sinks: list[Sink]) -> "Run":
        """Run `command` in the bound image; return once its process runs, or could not be executed.

        Its output goes to `sinks`, a list that may grow while it runs.

        Raises:
            BindError, PilotError: the container does not come to run what was bound, or is not clean.
            PayloadLost: it went away meanwhile.
            Refused: nothing is bound.
        """
        if self.state is not State.BINDING or self._binding is None:
            raise Refused(f"payload container {self.name} is {self.state.value}; nothing can be started in it")
        binding = self._binding
        try:
            channel, identity = await self._binder.confirm(await asyncio.shield(binding))
            # Only now is the container before it proven gone, and with it whoever could still write there.
            await asyncio.to_thread(self._scratch.clean)
        except PilotError:
            if self._binding is binding:
                self._advance(Event.FAIL)
            raise
        if self._binding is not binding:
            raise Refused("the job was removed before it started")
        self._advance(Event.BOUND)
        self._run = run = Run(channel, identity, Stdio(sinks), read_traffic())
        self._advance(Event.START)
        self._following = self._spawn(lambda: self._follow(run, command), "run")
        await asyncio.wait(_any(run.running, run.ended), return_when=asyncio.FIRST_COMPLETED)
        if not run.running.done():
            await run.ended
        return run

    def kill(self, number: int) -> None:
        """Send a signal to the job's own process; 9 goes to all of the job's processes at its end.

        Raises:
            Refused: no job runs.
        """
        if self.state not in ALIVE:
            raise Refused(f"payload container {self.name} is {self.state.value}; no job runs in it")
        run = self.run
        if number == signal.SIGKILL:
            self._spawn(lambda: _insist(run), "kill")
        if self.state is not State.ENDING:
            run.channel.signal(number)

    async def remove(self) -> None:
        """End the job if it still runs, and free the container for the next."""
        if self.state in ALIVE:
            self.run.abandoned.set()
            with contextlib.suppress(PayloadLost):
                self.kill(signal.SIGKILL)
            await asyncio.wait([self.run.ended])
        self._free()

    def _free(self) -> None:
        self._cancel_later()
        if self._binding is not None:
            self._binding.cancel()
        self._binding = self._reference = None
        self._claimed = False
        if self.state is not State.IDLE:
            self._advance(Event.REMOVE)
            self._do_later(self._idle_seconds, "unbind", self._rest)

    def close(self) -> None:
        """Let go of everything that is under way, at the end of the pilot."""
        for work in (self._later, self._binding, self._following):
            if work is not None:
                work.cancel()

    async def _bind(self, reference: Reference) -> Binding:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._bind_seconds):
                binding = await self._binder.bind(reference)
        except TimeoutError:
            raise BindError(
                f"image {reference} did not come to run within {self._bind_seconds:.0f} s; "
                "it may be too large for the node or its registry too slow"
            ) from None
        except ExceptionGroup as group:
            raise first_cause(group) from group
        logger.info("Bound %s in %.3f s.", reference, asyncio.get_running_loop().time() - began)
        return binding

    async def _follow(self, run: "Run", command: Command) -> None:
        """From the release of the job to its result."""
        channel = run.channel
        try:
            with run.stdio:
                _release(command, run)
                async with asyncio.TaskGroup() as group:
                    pump = group.create_task(run.stdio.pump(), name="stdio")
                    await asyncio.wait([channel.started, channel.closed], return_when=asyncio.FIRST_COMPLETED)
                    if channel.started.done() and not channel.started.cancelled():
                        self._advance(Event.STARTED)
                        run.running.set_result(None)
                    await asyncio.wait(_any(channel.exited, channel.closed), return_when=asyncio.FIRST_COMPLETED)
                    outcome = await self._settle(run)
                    await _drain(run, pump)
        except PayloadLost as error:
            self._advance(Event.LOSE)
            run.ended.set_exception(error)
            logger.warning("%s", error)
        except ExceptionGroup as group:
            self._advance(Event.LOSE)
            run.ended.set_exception(first_cause(group))
            logger.warning("%s", first_cause(group))
        else:
            self._advance(Event.SETTLED)
            run.ended.set_result(outcome)
            logger.info("The job ended with code %d.", outcome.code)
        finally:
            if run.ended.done():
                run.ended.exception()  # known to have been looked at, whether or not somebody waits

    async def _settle(self, run: "Run") -> Outcome:
        """The result, after all that the job left running is dead."""
        channel = run.channel
        run.last_usage = read_usage(channel.cgroup)
        if not channel.exited.done() or channel.exited.cancelled():
            return await self._autopsy(run)
        self._advance(Event.EXIT)
        outcome = Outcome.of(channel.exited.result(), out_of_memory=bool(run.last_usage.oom_kills))
        with contextlib.suppress(PayloadLost):
            channel.sweep()
            await asyncio.wait(
                [channel.swept, channel.closed], timeout=_SWEEP_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        if channel.still_open() and not channel.swept.done():
            logger.warning("What the job left running does not end; its container is killed.")
            channel.kill()
            await asyncio.wait([channel.closed], timeout=_SWEEP_SECONDS)
        return outcome

    async def _autopsy(self, run: "Run") -> Outcome:
        """payload-init ended without a report. Only one end of a container is the job's own: out of memory."""

        def ended(pod: dict[str, Any]) -> dict[str, Any] | None:
            view = container(pod, self.name)
            found = view.ended if view is not None else None
            return found if found is not None and found.get("containerID") == run.identity else None

        reason = "it was killed"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_SECONDS):
                status = await self._pod.until(ended)
                reason = f"{status.get('reason', 'Error')}, exit code {status.get('exitCode')}"
                if status.get("reason") == "OOMKilled":
                    self._advance(Event.EXIT)
                    return Outcome.killed_for_memory()
        raise PayloadLost(
            f"the payload container ended under the job ({reason}), which has no result; it goes back to the queue"
        )

    async def _rest(self) -> None:
        try:
            await self._binder.rest()
        except PilotError as error:
            logger.warning("The payload container stays with the last job's image: %s.", error)

    def _advance(self, event: Event) -> None:
        before, self.state = self.state, advance(self.state, event)
        logger.debug("Payload container %s: %s, %s -> %s.", self.name, event.value, before.value, self.state.value)

    def _do_later(self, seconds: float, name: str, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def act() -> None:
            await asyncio.sleep(seconds)
            self._later = None
            await action()

        self._later = self._spawn(act, name)

    def _cancel_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> asyncio.Future[T]:
        """Start a task whose failure is its future's and not the whole pilot's."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def guard() -> None:
            try:
                result = await work()
            except asyncio.CancelledError:
                future.cancel()
                raise
            except PilotError as error:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # who waits for it raises it; nobody may
            except Exception as error:
                logger.exception("%s failed; this is a fault of k8spilot.", name)
                if not future.done():
                    future.set_exception(PilotError(f"the pilot itself failed ({error!r}); its log has the details"))
                    future.exception()
            else:
                if not future.done():
                    future.set_result(result)

        task = self._tasks.create_task(guard(), name=f"{self.name}: {name}")
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future


class Run:
    """One command in a payload container."""

    def __init__(self, channel: Channel, identity: str, stdio: Stdio, traffic: Traffic) -> None:
        loop = asyncio.get_running_loop()
        self.identity = identity
        self.channel = channel
        self.stdio = stdio
        self.began = datetime.now(UTC)
        self.running: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[Outcome] = loop.create_future()
        """The result; raises PayloadLost when there is none."""
        self.abandoned = asyncio.Event()
        """Set when nobody wants its output any more."""
        self.last_usage = Usage()
        self._traffic = traffic

    @property
    def usage(self) -> Usage:
        """Figures now, or at the end."""
        return self.last_usage if self.ended.done() else read_usage(self.channel.cgroup)

    @property
    def traffic(self) -> Traffic:
        """What went over the pod's network since the run began."""
        now = read_traffic()
        return Traffic(now.received - self._traffic.received, now.sent - self._traffic.sent)


def _release(command: Command, run: Run) -> None:
    """Hand the command over, in memory that has no name, so that no other job can read it."""
    memory = os.memfd_create("command", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(command.encode())
        run.channel.run((memory, *run.stdio.descriptors))
    finally:
        os.close(memory)
        run.stdio.hand_over()


async def _insist(run: Run) -> None:
    """End the container of a run whose payload-init does not do its work: its job may have stopped it."""
    if (await asyncio.wait([run.ended], timeout=_SWEEP_SECONDS))[1] and not run.channel.exited.done():
        logger.warning("%r does not end its job; it is killed.", run.channel)
        run.channel.kill()


async def _drain(run: Run, pump: "asyncio.Task[None]") -> None:
    """Wait for the rest of the output, as long as somebody takes it. Its writers are dead by now."""
    abandoned = asyncio.ensure_future(run.abandoned.wait())
    try:
        while not pump.done() and not run.abandoned.is_set():
            before = run.stdio.carried
            await asyncio.wait(_any(pump, abandoned), timeout=_DRAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not pump.done() and run.stdio.carried == before and not run.stdio.writing:
                logger.warning("The job's output does not end with its processes; there is nothing more in it.")
                break
    finally:
        abandoned.cancel()
        pump.cancel()


def _any(*futures: "asyncio.Future[Any]") -> "tuple[asyncio.Future[Any], ...]":
    """Futures of different results, for asyncio.wait."""
    return futures


def _failed(future: "asyncio.Future[Binding] | None") -> bool:
    return future is not None and future.done() and (future.cancelled() or future.exception() is not None)
