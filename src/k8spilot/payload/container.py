"""One payload container and its jobs, one after another: what happens between the states of model/payload_state.py."""

import asyncio
import contextlib
import logging
import signal
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from k8spilot.common import logs
from k8spilot.common.errors import PayloadLost, PilotError, Refused, Untimely
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.outcome import Outcome
from k8spilot.model.payload_state import ALIVE, PayloadEvent, PayloadState, advance
from k8spilot.model.reference import Reference, is_same
from k8spilot.payload.abandoned_pull import AbandonedPull
from k8spilot.payload.background import Background
from k8spilot.payload.binder import Binder
from k8spilot.payload.exec_session import ExecSession
from k8spilot.payload.image_change import ImageChange
from k8spilot.payload.image_lookup import ImageLookup
from k8spilot.payload.listeners import SlotListener, reported
from k8spilot.payload.run import Run, RunTarget
from k8spilot.payload.scrub.scrubber import Scrubber, Scrubbing
from k8spilot.payload.stdio import Stdio

logger = logging.getLogger(__name__)

_UNCLAIMED_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times of a payload container."""

    bind_seconds: float
    """How long a bind may take, once it is known what the image is."""
    idle_seconds: float
    """How long it stays with the last job's image when no new job comes."""
    patience_seconds: float
    """How long an API server that is away is waited for."""


class PayloadContainer:
    """A slot's payload container."""

    def __init__(
        self,
        pod: OwnPod,
        lookup: ImageLookup,
        binder: Binder,
        scrubber: Scrubber,
        tasks: asyncio.TaskGroup,
        *,
        pace: Timeouts,
        listener: SlotListener,
    ) -> None:
        self.name = binder.name
        self.state = PayloadState.IDLE
        self.since = datetime.now(UTC)
        """When it came to its state."""
        self.subject = logs.Subject()
        """The last bind, and the job that it is for."""
        self._pod = pod
        self._lookup = lookup
        self._binder = binder
        self._scrubber = scrubber
        self._work = Background(self.name, tasks, lambda: self.subject)
        self._pace = pace
        self._listener = listener
        self._reference: Reference | None = None
        self._claimed = False
        self._binding: asyncio.Future[ImageChange] | None = None
        self._starting: asyncio.Future[ImageChange] | None = None
        self._following: asyncio.Future[None] | None = None
        self._rescuing: asyncio.Future[None] | None = None
        self._run: Run | None = None
        self.scrubbing = Scrubbing(
            scrubber, lambda seconds: self._work.start(partial(listener.away, "remains", seconds), "notice")
        )
        self.abandoned_pull = AbandonedPull(binder, listener, self._work.start, pace.patience_seconds)

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
    def free(self) -> bool:
        """Whether nobody has it: it is idle, or an image is being bound for somebody who has not come yet."""
        return self.state is PayloadState.IDLE or (self.state is PayloadState.BINDING and not self._claimed)

    @property
    def reference(self) -> Reference | None:
        """The image that is bound, or about to be, for a job."""
        return self._reference

    @property
    def running_since(self) -> datetime | None:
        """When the job began that runs now."""
        return self._run.began if self._run is not None and self.state in ALIVE else None

    @property
    def api_requests(self) -> int:
        """Requests to the Kubernetes API that the pilot has made so far."""
        return self._pod.api.requests.total()

    def begin(self, reference: Reference) -> None:
        """Begin to bind an image, in the background. Does nothing if that image is under way already.

        Raises:
            ImageNotAllowed: no job here may have that image.
            Refused: another job has the container.
        """
        self._lookup.admit(reference)
        if self.state is PayloadState.BINDING and not self._claimed:
            if is_same(self._reference, reference) and not _failed(self._binding):
                return
            self._free()
        if self.state is not PayloadState.IDLE:
            raise Untimely(
                f"payload container {self.name} is {self.state.value}: it takes one job at a time; "
                "remove the last one first"
            )
        self._work.drop_later()
        if self._rescuing is not None:  # the next job's container is none of its business
            self._rescuing.cancel()
        self._advance(PayloadEvent.BIND)
        self._reference = reference
        self._run = None
        self.subject = replace(logs.subject(), attempt=uuid.uuid4().hex[:12])
        self._binding = self._work.start(lambda: self._bind(reference), "bind")
        longest = self._pace.patience_seconds + self._pace.bind_seconds + _UNCLAIMED_SECONDS
        self._work.start_later(longest, "unclaimed bind", self._drop_unclaimed)

    def give_up(self) -> bool:
        """Drop a bind that nobody has claimed yet; False when there is none."""
        if self.state is not PayloadState.BINDING or self._claimed:
            return False
        self._free()
        return True

    def drop(self) -> None:
        """Give up a bind whose job is not wanted any more, if that has not been released yet."""
        if self.state is PayloadState.BINDING:
            self._free()

    async def pulled(self, reference: Reference) -> Image | None:
        """Wait while the bind of `reference` brings an image that is new to this pod; its errors are `bound`'s."""
        binding = self._binding
        if binding is None or not is_same(self._reference, reference):
            return None
        if not self._lookup.has_had(reference):
            await asyncio.wait([binding])
        return binding.result().image if binding.done() and not _failed(binding) else None

    async def bound(self, reference: Reference) -> Image:
        """Wait until `reference`, begun or not, runs; from then on the container is the caller's until `remove`.

        Raises:
            BindError: it cannot; the container is free for the next.
            NotNow: it cannot, for which the job is not to blame: the API server is away, for one.
            Refused: another job has the container, or this one was removed meanwhile.
        """
        if self.state is not PayloadState.BINDING or self._claimed or not is_same(self._reference, reference):
            self.begin(reference)
        # What was begun may have failed by now: its error is this caller's, who would only wait as long once more.
        self._work.drop_later()
        self._claimed = True
        self._claim()
        binding = self._binding
        assert binding is not None
        try:
            await asyncio.wait([binding])
        except asyncio.CancelledError:  # whoever wanted it has gone
            self._free()
            raise
        if binding.cancelled() or self._binding is not binding:
            raise Untimely(f"the job was removed while image {reference} was bound")
        if (error := binding.exception()) is not None:
            self._advance(PayloadEvent.FAIL)
            await self.remove()
            raise error
        return binding.result().image

    async def start(self, command: Command, stdio: Stdio) -> Run:
        """Release `command` in the bound image; `Run.begun` waits until its process runs.

        Raises:
            PayloadLost: the container does not come to run what was bound, is not clean, or went away meanwhile.
            Refused: nothing is bound.
        """
        if self.state is not PayloadState.BINDING or self._binding is None or self._starting is self._binding:
            raise Refused(f"payload container {self.name} is {self.state.value}; nothing can be started in it")
        binding = self._starting = self._binding
        try:
            channel, identity = await self._binder.confirm(await asyncio.shield(binding))
            # Only now is the container before it proven gone, and with it whoever could still write there.
            await self.scrubbing.clean(channel)
        except PilotError:
            if self._binding is binding:
                self._advance(PayloadEvent.FAIL)
            raise
        if self._binding is not binding:
            raise Refused("the job was removed before it started")
        self._advance(PayloadEvent.BOUND)
        self._run = run = Run(
            channel, self._pod, RunTarget(self.name, identity, self._pace.patience_seconds), stdio, self._scrubber
        )
        self._advance(PayloadEvent.START)
        run.ended.add_done_callback(self._tell_end)
        self._following = self._work.start(lambda: run.follow(command, self._advance), "run")
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
            self._work.start(run.insist, "kill")
        if self.state is not PayloadState.ENDING:
            run.channel.signal(number)

    def pause(self) -> None:
        """Stop all processes of the job.

        Raises:
            Refused: no job runs, or it is paused.
        """
        if self.state is not PayloadState.RUNNING:
            raise Refused(f"payload container {self.name} is {self.state.value}; only a job that runs can be paused")
        self.run.channel.pause()
        self._advance(PayloadEvent.PAUSE)

    def resume(self) -> None:
        """Let a paused job go on.

        Raises:
            Refused: it is not paused.
        """
        if self.state is not PayloadState.PAUSED:
            raise Refused(f"payload container {self.name} is {self.state.value}, not paused")
        self.run.channel.resume()
        self._advance(PayloadEvent.RESUME)

    def execute(self, command: Command, stdio: Stdio) -> ExecSession:
        """Run `command` beside the job; the session that is returned has begun.

        Raises:
            Refused: no job runs.
        """
        if self.state is not PayloadState.RUNNING:
            raise Refused(
                f"payload container {self.name} is {self.state.value}; commands run only beside a running job"
            )
        session = self.run.session(command, stdio)
        self._work.start(session.follow, "session")
        return session

    async def remove(self) -> None:
        """End the job if it still runs, and free the container for the next."""
        if self.state in ALIVE:
            self.run.abandoned.set()
            with contextlib.suppress(PayloadLost):
                self.kill(signal.SIGKILL)
            await asyncio.wait([self.run.ended])
        self._free()

    def _claim(self) -> None:
        """Whoever has asked for the bind says for which job."""
        now = logs.subject()
        self.subject.job, self.subject.slot = now.job, now.slot
        logs.about(self.subject)

    def _tell_end(self, ended: asyncio.Future[Outcome]) -> None:
        if ended.cancelled():
            return
        if (error := ended.exception()) is not None:
            self._listener.lost(str(error))
            if self._scrubber.needs_container and self._run is not None:
                coming = partial(self._binder.next_container, self._run.channel)
                self._rescuing = self._work.start(lambda: self.scrubbing.rescue(coming()), "rescue")
        else:
            self._listener.ended(ended.result())

    def _free(self) -> None:
        if self.state is PayloadState.IDLE:
            return  # somebody else was faster; the unbind is under way
        self._work.drop_later()
        if self._binding is not None:
            self._binding.cancel()
        self._binding = self._starting = self._reference = None
        self._claimed = False
        self._advance(PayloadEvent.REMOVE)
        if self._binder.unfinished is not None:
            self.abandoned_pull.begin()
        else:
            # Where a container is needed to clean up, a lost one is followed at once: the kubelet would make a pause.
            is_lost = self._scrubber.needs_container and self._run is not None and not self._run.channel.still_open()
            self._work.start_later(0 if is_lost else self._pace.idle_seconds, "unbind", self._binder.rest)

    def close(self) -> None:
        """Let go of everything that is under way, at the end of the pilot."""
        self._work.drop_later()
        self.abandoned_pull.close()
        for work in (self._binding, self._following):
            if work is not None:
                work.cancel()

    async def _bind(self, reference: Reference) -> ImageChange:
        began = asyncio.get_running_loop().time()
        async with reported(self._listener, reference, self._work.start):
            image = await self._lookup.find(reference)
            await self.abandoned_pull.over(reference)
            binding = await self._binder.bind(image, self.subject.attempt, self._pace.bind_seconds)
        self._lookup.keep(image)
        logger.info("Bound %s in %.3f s.", reference, asyncio.get_running_loop().time() - began)
        return binding

    async def _drop_unclaimed(self) -> None:
        self._work.keep_later()  # or it would be cancelled by its own work
        await self.remove()

    def _advance(self, event: PayloadEvent) -> None:
        before, self.state = self.state, advance(self.state, event)
        self.since = datetime.now(UTC)
        logger.debug("Payload container %s: %s, %s -> %s.", self.name, event.value, before.value, self.state.value)


def _failed(future: "asyncio.Future[ImageChange] | None") -> bool:
    return future is not None and future.done() and (future.cancelled() or future.exception() is not None)
