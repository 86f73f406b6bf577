"""One payload container and its jobs, one after another: what happens between the states of model/payload_state.py."""

import asyncio
import contextlib
import signal
import uuid
from dataclasses import replace
from datetime import datetime
from functools import partial

from k8spilot.common import logs
from k8spilot.common.errors import PayloadLost, PilotError, Refused, Untimely
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.payload_state import ALIVE, UNCLAIMED, UNRELEASED, PayloadEvent, PayloadState
from k8spilot.model.reference import Reference, is_same
from k8spilot.payload.abandoned_pull import AbandonedPull
from k8spilot.payload.aftermath import Aftermath
from k8spilot.payload.background import Background
from k8spilot.payload.bind import Bind, BindSteps, Timeouts
from k8spilot.payload.binder import Binder
from k8spilot.payload.image_lookup import ImageLookup
from k8spilot.payload.listeners import SlotListener
from k8spilot.payload.machine import PayloadMachine
from k8spilot.payload.run import Run, RunTarget
from k8spilot.payload.scrub.scrubber import Scrubber, Scrubbing
from k8spilot.payload.stdio import Stdio


class PayloadContainer:
    """A slot's payload container.

    The table, by which payload/machine.py moves, says what may happen in which state. It does not say for whom: a
    method that has waited, or that is called late, may find the state of another job's turn. So each turn has a `Bind`
    of its own, which its job shows, and which is compared with the container's.
    """

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
        self._machine = PayloadMachine(binder.name)
        self.subject = logs.Subject()
        """The last bind, and the job that it is for."""
        self._pod = pod
        self._binder = binder
        self._scrubber = scrubber
        self._work = work = Background(self.name, tasks, lambda: self.subject)
        self._patience = pace.patience_seconds
        self.scrubbing = Scrubbing(
            scrubber, lambda seconds: work.start(partial(listener.away, "remains", seconds), "notice")
        )
        self.abandoned_pull = AbandonedPull(binder, listener, work.start, pace.patience_seconds)
        self._steps = BindSteps(lookup, binder, self.abandoned_pull, listener, work, pace)
        self._aftermath = Aftermath(
            binder, scrubber, self.scrubbing, self.abandoned_pull, work, listener, pace.idle_seconds
        )
        self._bind: Bind | None = None
        """Of the job that has the container, or may claim it; none in IDLE."""
        self._run: Run | None = None
        """Of the last command that was released since the last bind began."""
        self._following: asyncio.Future[None] | None = None
        """The work on that run, to be cancelled at the end of the pilot."""

    @property
    def state(self) -> PayloadState:
        """The state now."""
        return self._machine.state

    @property
    def since(self) -> datetime:
        """When it came to its state."""
        return self._machine.since

    @property
    def free(self) -> bool:
        """Whether no job has it: it is idle, or has an image that no job has claimed."""
        return self.state is PayloadState.IDLE or self.state in UNCLAIMED

    @property
    def reference(self) -> Reference | None:
        """The image that is bound, or about to be, for a job."""
        return None if self._bind is None else self._bind.reference

    @property
    def running_since(self) -> datetime | None:
        """When the job began that runs now."""
        return self._run.began if self._run is not None and self.state in ALIVE else None

    def begin(self, reference: Reference) -> Bind:
        """Begin to bind an image, in the background. Does nothing if that image is under way already.

        Raises:
            ImageNotAllowed: no job here may have that image.
            Refused: another job has the container.
        """
        self._steps.admit(reference)
        if self._bind is not None and self.state in UNCLAIMED:
            if is_same(self._bind.reference, reference) and self.state is not PayloadState.PULL_FAILED:
                return self._bind
            self._free(self._bind)
        if self.state is not PayloadState.IDLE:
            raise Untimely(
                f"payload container {self.name} is {self.state.value}: it takes one job at a time; "
                "remove the last one first"
            )
        self._aftermath.end()
        self._machine.advance(PayloadEvent.PULL)
        self._run = None
        self.subject = replace(logs.subject(), attempt=uuid.uuid4().hex[:12])
        self._bind = Bind(reference, self.subject, self._work, self._steps.make, self._bind_ended)
        self._work.start_later(self._steps.unclaimed_seconds, "unclaimed bind", self._drop_unclaimed)
        return self._bind

    def give_up(self) -> bool:
        """Drop a bind that nobody has claimed yet; False when there is none."""
        if self._bind is None or self.state not in UNCLAIMED:
            return False
        self._free(self._bind)
        return True

    def drop(self, bind: Bind) -> None:
        """Give up a bind whose job is not wanted any more, if its command has not been released yet."""
        if self.state in UNRELEASED:
            self._free(bind)

    async def pulled(self, reference: Reference) -> Image | None:
        """Wait while the bind of `reference` brings an image that is new to this pod; its errors are `bound`'s."""
        bind = self._bind
        if bind is None or not is_same(bind.reference, reference):
            return None
        if self._steps.is_new(reference):
            await asyncio.wait([bind.change])
        return bind.image if bind.is_bound else None

    async def bound(self, reference: Reference) -> Bind:
        """Wait until `reference`, begun or not, runs; from then on the container is the caller's until `remove`.

        Raises:
            BindError: it cannot; the container is free for the next.
            NotNow: it cannot, for which the job is not to blame: the API server is away, for one.
            Refused: another job has the container, or this one was removed meanwhile.
        """
        bind = self._bind
        if bind is None or self.state not in UNCLAIMED or not is_same(bind.reference, reference):
            bind = self.begin(reference)
        # A bind that has failed by now has this caller's error: another one would only take as long once more.
        self._machine.advance(PayloadEvent.CLAIM)
        self._work.drop_later()
        self._claim()
        try:
            await asyncio.wait([bind.change])
        except asyncio.CancelledError:  # the client has gone
            self._free(bind)
            raise
        if bind is not self._bind or bind.change.cancelled():
            raise Untimely(f"the job was removed while image {reference} was bound")
        if (error := bind.change.exception()) is not None:
            self._free(bind)
            raise error
        return bind

    async def start(self, bind: Bind, command: Command, stdio: Stdio) -> Run:
        """Release `command` in the bound image; `Run.begun` waits until its process runs.

        Raises:
            PayloadLost: the container does not come to run what was bound, is not clean, or went away meanwhile.
            Refused: the bind is not the container's any more, or was started already.
        """
        if bind is not self._bind or self.state is not PayloadState.READY:
            raise Refused(f"payload container {self.name} is {self.state.value}; the job cannot be started in it")
        self._machine.advance(PayloadEvent.PREPARE)
        try:
            channel, identity = await self._binder.confirm(bind.change.result())
            # Only now is the container before it proven gone, and with it each process that could still write there.
            await self.scrubbing.clean(channel)
        except PilotError:
            if bind is self._bind:
                self._machine.advance(PayloadEvent.FAIL)
            raise
        if bind is not self._bind:
            raise Refused("the job was removed before it started")
        target = RunTarget(self.name, identity, self._patience)
        self._run = run = Run(channel, self._pod, target, stdio, self._scrubber, self._machine, self._work)
        self._machine.advance(PayloadEvent.RELEASE)
        self._aftermath.expect_end(run)
        self._following = self._work.start(lambda: run.follow(command), "run")
        return run

    async def remove(self, bind: Bind) -> None:
        """End the job of `bind` if it still runs, and free the container for the next; nothing if that is done."""
        if bind is self._bind and self._run is not None and self.state in ALIVE:
            self._run.abandoned.set()
            with contextlib.suppress(PayloadLost):
                self._run.kill(signal.SIGKILL)
            await asyncio.wait([self._run.ended])
        self._free(bind)

    def close(self) -> None:
        """Let go of everything that is under way, at the end of the pilot."""
        self._work.drop_later()
        self.abandoned_pull.close()
        for work in (None if self._bind is None else self._bind.change, self._following):
            if work is not None:
                work.cancel()

    def _claim(self) -> None:
        """Whoever has asked for the bind says for which job."""
        now = logs.subject()
        self.subject.job, self.subject.slot = now.job, now.slot
        logs.about(self.subject)

    def _bind_ended(self, bind: Bind, event: PayloadEvent) -> None:
        if bind is self._bind:
            self._machine.advance(event)

    async def _drop_unclaimed(self) -> None:
        self._work.keep_later()  # or it would be cancelled by its own work
        self.give_up()

    def _free(self, bind: Bind) -> None:
        if bind is not self._bind:
            return  # somebody else was faster; the unbind is under way
        self._work.drop_later()
        bind.change.cancel()
        self._bind = None
        self._machine.advance(PayloadEvent.REMOVE)
        self._aftermath.unbind(self._run)
