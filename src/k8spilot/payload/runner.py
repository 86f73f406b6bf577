"""One payload container and the jobs that run in it, one after another.

The states are those of model/lifecycle.py; this is what happens on the way from one to the next.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from k8spilot.errors import BindError, PayloadLost, PilotError, Refused, first_cause
from k8spilot.kube.watch import OwnPod
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.lifecycle import ALIVE, Event, State, advance
from k8spilot.model.reference import Reference
from k8spilot.payload.binding import Binder, Binding
from k8spilot.payload.notices import Notices, told
from k8spilot.payload.run import Run
from k8spilot.payload.session import Session
from k8spilot.payload.stdio import Stdio
from k8spilot.sandbox import Scratch

logger = logging.getLogger(__name__)

T = TypeVar("T")

_UNCLAIMED_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a payload container."""

    bind_seconds: float
    """How long a bind may take."""
    idle_seconds: float
    """How long it stays with the last job's image when no new job comes."""


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
        pace: Pace,
        notices: Notices,
    ) -> None:
        self.name = name
        self.state = State.IDLE
        self._pod = pod
        self._binder = binder
        self._scratch = scratch
        self._tasks = tasks
        self._pace = pace
        self._notices = notices
        self._reference: Reference | None = None
        self._claimed = False
        self._binding: asyncio.Future[Binding] | None = None
        self._starting: asyncio.Future[Binding] | None = None
        self._later: asyncio.Future[None] | None = None
        self._following: asyncio.Future[None] | None = None
        self._run: Run | None = None
        self._cleaning = asyncio.Lock()

    @property
    def run(self) -> Run:
        """The run that is under way or has ended last.

        Raises:
            Refused: nothing has been started since the last bind.
        """
        if self._run is None:
            raise Refused(f"nothing has been started in payload container {self.name} yet")
        return self._run

    @property
    def api_requests(self) -> int:
        """Requests to the Kubernetes API that the pilot has made so far."""
        return self._pod.requests

    def begin(self, reference: Reference) -> None:
        """Begin to bind an image, in the background. Does nothing if that image is under way already.

        Raises:
            Refused: another job has the container.
        """
        if self.state is State.BINDING and not self._claimed:
            if _is_of(self._reference, reference) and not _failed(self._binding):
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
        self._do_later(self._pace.bind_seconds + _UNCLAIMED_SECONDS, "unclaimed bind", self.remove)

    def give_up(self) -> bool:
        """Drop a bind that nobody has claimed yet; False when there is none."""
        if self.state is not State.BINDING or self._claimed:
            return False
        self._free()
        return True

    async def pulled(self, reference: Reference) -> Image | None:
        """Wait while the bind of `reference` brings an image that is new to this pod; its errors are `bound`'s."""
        binding = self._binding
        if binding is None or not _is_of(self._reference, reference):
            return None
        if not self._binder.has_had(reference):
            await asyncio.wait([binding])
        return binding.result().image if binding.done() and not _failed(binding) else None

    async def bound(self, reference: Reference) -> Image:
        """Wait until `reference`, begun or not, runs; from then on the container is the caller's until `remove`.

        Raises:
            BindError: it cannot; the container is free for the next.
            ClusterError: the API server does not do its part.
            Refused: another job has the container, or this one was removed meanwhile.
        """
        if self.state is not State.BINDING or self._claimed or not _is_of(self._reference, reference):
            self.begin(reference)
        # What was begun may have failed by now: its error is this caller's, who would only wait as long once more.
        self._cancel_later()
        self._claimed = True
        binding = self._binding
        assert binding is not None
        try:
            await asyncio.wait([binding])
        except asyncio.CancelledError:  # whoever wanted it has gone
            self._free()
            raise
        if binding.cancelled() or self._binding is not binding:
            raise Refused(f"the job was removed while image {reference} was bound")
        if (error := binding.exception()) is not None:
            self._advance(Event.FAIL)
            await self.remove()
            raise error
        return binding.result().image

    async def start(self, command: Command, stdio: Stdio) -> Run:
        """Release `command` in the bound image; `Run.begun` waits until its process runs.

        Raises:
            BindError, PilotError: the container does not come to run what was bound, or is not clean.
            PayloadLost: it went away meanwhile.
            Refused: nothing is bound.
        """
        if self.state is not State.BINDING or self._binding is None or self._starting is self._binding:
            raise Refused(f"payload container {self.name} is {self.state.value}; nothing can be started in it")
        binding = self._starting = self._binding
        try:
            channel, identity = await self._binder.confirm(await asyncio.shield(binding))
            # Only now is the container before it proven gone, and with it whoever could still write there.
            async with self._cleaning:  # not beside a thread of a start that was given up
                await asyncio.to_thread(self._scratch.clean)
        except PilotError:
            if self._binding is binding:
                self._advance(Event.FAIL)
            raise
        if self._binding is not binding:
            raise Refused("the job was removed before it started")
        self._advance(Event.BOUND)
        self._run = run = Run(channel, self._pod, self.name, identity, stdio, self._scratch.unlock)
        self._advance(Event.START)
        self._following = self._spawn(lambda: run.follow(command, self._advance), "run")
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
            self._spawn(run.insist, "kill")
        if self.state is not State.ENDING:
            run.channel.signal(number)

    def pause(self) -> None:
        """Stop all processes of the job.

        Raises:
            Refused: no job runs, or it is paused.
        """
        if self.state is not State.RUNNING:
            raise Refused(f"payload container {self.name} is {self.state.value}; only a job that runs can be paused")
        self.run.channel.pause()
        self._advance(Event.PAUSE)

    def resume(self) -> None:
        """Let a paused job go on.

        Raises:
            Refused: it is not paused.
        """
        if self.state is not State.PAUSED:
            raise Refused(f"payload container {self.name} is {self.state.value}, not paused")
        self.run.channel.resume()
        self._advance(Event.RESUME)

    def execute(self, command: Command, stdio: Stdio) -> Session:
        """Run `command` beside the job; the session that is returned has begun.

        Raises:
            Refused: no job runs.
        """
        if self.state is not State.RUNNING:
            raise Refused(
                f"payload container {self.name} is {self.state.value}; commands run only beside a running job"
            )
        session = self.run.session(command, stdio)
        self._spawn(session.follow, "session")
        return session

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
        self._binding = self._starting = self._reference = None
        self._claimed = False
        if self.state is not State.IDLE:
            self._advance(Event.REMOVE)
            self._do_later(self._pace.idle_seconds, "unbind", self._rest)

    def close(self) -> None:
        """Let go of everything that is under way, at the end of the pilot."""
        for work in (self._later, self._binding, self._following):
            if work is not None:
                work.cancel()

    async def _bind(self, reference: Reference) -> Binding:
        began = asyncio.get_running_loop().time()
        async with told(self._notices, reference, self._spawn):
            try:
                async with asyncio.timeout(self._pace.bind_seconds):
                    binding = await self._binder.bind(reference)
            except TimeoutError:
                raise BindError(
                    f"image {reference} did not come to run within {self._pace.bind_seconds:.0f} s; "
                    "it may be too large for the node or its registry too slow"
                ) from None
            except ExceptionGroup as group:
                raise first_cause(group) from group
        logger.info("Bound %s in %.3f s.", reference, asyncio.get_running_loop().time() - began)
        return binding

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


def _failed(future: "asyncio.Future[Binding] | None") -> bool:
    return future is not None and future.done() and (future.cancelled() or future.exception() is not None)


def _is_of(one: Reference | None, other: Reference) -> bool:
    return one is not None and one.source == other.source
