"""One payload container and its jobs, one after another: the work between the states of model/payload_state.py."""

import asyncio
import contextlib
import logging
import signal
import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from k8spilot.common import logs
from k8spilot.common.aio import first_of, side_by_side
from k8spilot.common.background import Background
from k8spilot.common.errors import BindError, NotNow, PayloadLost, PilotError, Refused, Untimely
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.payload_state import ALIVE, UNCLAIMED, UNRELEASED, PayloadEvent, PayloadState
from k8spilot.model.reference import Reference, is_same
from k8spilot.model.slot_sizes import Size
from k8spilot.payload.after_run import AfterRun
from k8spilot.payload.binding.abandoned_pull import AbandonedPull
from k8spilot.payload.binding.bind import Bind, BindSteps, Timeouts
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.binding.image_lookup import ImageLookup
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload.container_sizes import ContainerSizes
from k8spilot.payload.disk_watch import DiskShare, DiskWatch
from k8spilot.payload.listeners import SlotListener
from k8spilot.payload.reuse import ContainerReuse, Whose
from k8spilot.payload.run import Run, RunTarget
from k8spilot.payload.scrub.scrubber import Scrubber, ScrubRunner
from k8spilot.payload.state_machine import PayloadMachine
from k8spilot.payload.usage import Usage
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class JobDifferences:
    """Differences between the jobs of a slot."""

    sizes: ContainerSizes | None = None
    """Gives the container the size of its job; None if all jobs of the slot have one size."""
    whose: Whose | None = None
    """Returns whose job it is, for the reuse of the container; None if each job has a fresh one."""


_SAME: Final = JobDifferences()


class PayloadContainer:
    """A slot's payload container.

    The table that payload/state_machine.py applies says what is legal in which state, but not for which job: after a
    wait, or in a late call, a method may see the state of another job. So each job has a `Bind` of its own, which it
    presents, and which is compared with the container's.
    """

    def __init__(
        self,
        lookup: ImageLookup,
        binder: Binder,
        scrubber: Scrubber,
        tasks: asyncio.TaskGroup,
        *,
        timeouts: Timeouts,
        listener: SlotListener,
        differences: JobDifferences = _SAME,
    ) -> None:
        self.name = binder.name
        self._listener = listener
        self._sizes = sizes = differences.sizes
        self._machine = PayloadMachine(binder.name)
        self.subject = logs.Subject()
        """Last bind and its job, for log lines."""
        self._binder = binder
        self._scrubber = scrubber
        self._work = work = Background(self.name, tasks, lambda: self.subject)
        self._patience = timeouts.patience_seconds
        self._bind_seconds = timeouts.bind_seconds
        self.scrub_runner = ScrubRunner(
            scrubber, lambda seconds: work.start(partial(listener.away, "remains", seconds), "notice")
        )
        self.abandoned_pull = AbandonedPull(binder, listener, work.start, timeouts.patience_seconds)
        self.reuse = ContainerReuse(differences.whose, binder, work)
        self._steps = BindSteps(
            lookup=lookup,
            binder=binder,
            abandoned_pull=self.abandoned_pull,
            listener=listener,
            work=work,
            timeouts=timeouts,
            renew=self.reuse.renew,
        )
        self._after_run = AfterRun(
            binder=binder,
            scrub_runner=self.scrub_runner,
            abandoned_pull=self.abandoned_pull,
            work=work,
            listener=listener,
            idle_seconds=timeouts.idle_seconds,
            sizes=sizes,
        )
        if sizes is not None:
            sizes.on_shrink(self.name, self._renew_idle)
        self._bind: Bind | None = None
        """Bind of the job that owns or may claim the container; None in IDLE."""
        self._run: Run | None = None
        """Run of the last command that was released since the last bind started."""
        self._following: asyncio.Future[None] | None = None
        """Task of that run, which the end of the pilot cancels."""

    def __repr__(self) -> str:
        return f"<PayloadContainer {self.name} {self.state.name}>"

    @property
    def state(self) -> PayloadState:
        """Present state."""
        return self._machine.state

    @property
    def since(self) -> datetime:
        """Time of the last change of state."""
        return self._machine.since

    @property
    def free(self) -> bool:
        """Whether no job owns it: it is idle, or its image is unclaimed."""
        return self.state is PayloadState.IDLE or self.state in UNCLAIMED

    @property
    def reference(self) -> Reference | None:
        """Image that is bound, or being bound, for a job."""
        return None if self._bind is None else self._bind.reference

    @property
    def running_since(self) -> datetime | None:
        """Start of the running job; None without one."""
        return self._run.began if self._run is not None and self.state in ALIVE else None

    def begin(self, reference: Reference) -> Bind:
        """Start to bind an image in the background. Do nothing if that bind is in progress.

        Raises:
            ImageNotAllowed: the policy does not allow the image.
            Refused: another job owns the container.
        """
        self._steps.admit(reference)
        if self._bind is not None and self.state in UNCLAIMED:
            if is_same(self._bind.reference, reference) and self.state is not PayloadState.PULL_FAILED:
                return self._bind
            self._free(self._bind)
        if self.state is not PayloadState.IDLE:
            raise Untimely(
                f"payload container {self.name} is {self.state.value}: it takes one job at a time; "
                "remove the last job first"
            )
        self._after_run.end()
        self._machine.advance(PayloadEvent.PULL)
        self._run = None
        self.subject = replace(logs.subject(), attempt=uuid.uuid4().hex[:12])
        self._bind = Bind(
            reference=reference,
            subject=self.subject,
            work=self._work,
            make=self._steps.make,
            ended=self._bind_ended,
            tenant=self.reuse.announced(),
        )
        self._work.start_later(self._steps.unclaimed_seconds, "unclaimed bind", self._drop_unclaimed)
        return self._bind

    def give_up(self) -> bool:
        """Drop a bind that no job has claimed yet; return False if there is none."""
        if self._bind is None or self.state not in UNCLAIMED:
            return False
        self._free(self._bind)
        return True

    def drop(self, bind: Bind) -> None:
        """Drop a bind whose job was removed before its command was released."""
        if self.state in UNRELEASED:
            self._free(bind)

    async def pulled(self, reference: Reference) -> Image | None:
        """Wait while the bind of `reference` pulls an image that is new to this pod; `bound` raises its errors."""
        bind = self._bind
        if bind is None or not is_same(bind.reference, reference):
            return None
        if self._steps.is_new(reference):
            await asyncio.wait([bind.change])
        return bind.image if bind.is_bound else None

    async def bound(self, reference: Reference, size: Size | None = None) -> Bind:
        """Wait until `reference` runs, and claim it: the container belongs to the caller until `remove`.

        Args:
            reference: the image.
            size: size of the job, which `start` waits for; None if it is not known.

        Raises:
            BindError: the image cannot run; the container is free for the next job.
            NotNow: the image cannot run now, and the job is not at fault: the API server is unavailable, for example.
            Refused: another job owns the container, or this job was removed in the meantime.
        """
        bind = self._bind
        if bind is None or self.state not in UNCLAIMED or not is_same(bind.reference, reference):
            bind = self.begin(reference)
        # A bind that has failed by now raises its error here: another attempt would take the same time again.
        self._machine.advance(PayloadEvent.CLAIM)
        self._work.drop_later()
        self._claim()
        if self._sizes is not None:
            self._sizes.reserve(self.name, size)
        try:
            async with side_by_side(asyncio.wait([bind.change]), self._resize()) as (changed, resized):
                await first_of(changed, resized)
                if not (changed.done() and bind.failed):
                    await resized
                    await changed
        except (asyncio.CancelledError, NotNow):  # the client has disconnected, or there is no room for the job
            self._free(bind)
            raise
        if bind is not self._bind or bind.change.cancelled():
            raise Untimely(f"the job was removed while image {reference} was bound")
        if (error := bind.change.exception()) is not None:
            self._free(bind)
            raise error
        return bind

    async def start(self, bind: Bind, command: Command, stdio: Stdio, disk: DiskShare | None = None) -> Run:
        """Release `command` in the bound image; `Run.begun` waits until its process runs.

        The run ends a command that uses more than its share of the `disk`; without one it is not measured.

        Raises:
            PayloadLost: the container does not run the bound image, is not clean, or has ended.
            Refused: the bind is not the container's current one, or was started already.
        """
        if bind is not self._bind or self.state is not PayloadState.READY:
            raise Refused(f"payload container {self.name} is {self.state.value}; the job cannot be started in it")
        self._machine.advance(PayloadEvent.PREPARE)
        try:
            channel, identity = await self._confirmed(bind)
            # Only now the previous container is proven gone, and with it every process that could write there. In a
            # container that is kept, payload-init has ended them.
            await self.scrub_runner.clean(channel)
        except PilotError:
            if bind is self._bind:
                self._machine.advance(PayloadEvent.FAIL)
            raise
        if bind is not self._bind:
            raise Refused("the job was removed before it started")
        watch = None if disk is None else DiskWatch(disk, channel)
        before = Usage() if bind.kept is None else bind.kept.before
        target = RunTarget(
            name=self.name,
            identity=identity,
            patience=self._patience,
            before=before,
            disk=watch,
            report_excess=self._after_run.report_excess,
        )
        self._run = run = Run(
            channel=channel,
            pod=self._binder.pod,
            target=target,
            stdio=stdio,
            scrubber=self._scrubber,
            machine=self._machine,
            work=self._work,
        )
        self._machine.advance(PayloadEvent.RELEASE)
        self._after_run.expect_end(run)
        self._following = self._work.start(lambda: run.follow(command), "run")
        return run

    async def remove(self, bind: Bind) -> None:
        """End the job of `bind` if it still runs, and free the container; do nothing if that is done."""
        if bind is self._bind and self._run is not None and self.state in ALIVE:
            self._run.abandoned.set()
            with contextlib.suppress(PayloadLost):
                self._run.kill(signal.SIGKILL)
            await asyncio.wait([self._run.ended])
        elif self._run is not None and self._run.ended.done():
            await asyncio.sleep(0)  # let the callbacks of `ended` run first
        self._free(bind)

    async def _resize(self) -> None:
        if self._sizes is not None:
            await self._sizes.request(self.name)

    async def _confirmed(self, bind: Bind) -> tuple[Channel, str]:
        """Wait until the pod's status shows the bound image in a container for the job, of the job's size.

        Raises:
            PayloadLost: it does not; the job is not at fault.
        """
        change = bind.change.result()
        for number in range(_TRIES):
            confirmed = await self._binder.confirm(change)
            if bind.kept is not None and bind.kept.channel is not confirmed[0]:
                bind.kept = None  # it has ended meanwhile, and the kubelet has made another one
            is_fit = bind.kept is None or not bind.is_anothers
            if is_fit and (self._sizes is None or await self._sizes.shown(self.name)):
                bind.confirmed = change
                self._report_reuse(bind)
                return confirmed
            # It was kept for another job, or made before the size was known, with more memory. The kubelet seldom takes
            # memory from a new container.
            if bind is not self._bind:
                raise Refused("the job was removed before it started")
            attempt = f"{bind.subject.attempt}-size{number}"
            try:
                change = await self._binder.bind(change.image, attempt, self._bind_seconds)
            except BindError as error:  # the image has run, so that the job is not at fault
                raise PayloadLost(f"{error}; the job goes back to the queue") from error
        raise PayloadLost(f"container {self.name} is not as the job needs it, and the job goes back to the queue")

    def _report_reuse(self, bind: Bind) -> None:
        if bind.kept is not None:
            logger.info("Container %s runs another job of its claim.", self.name)
            self._listener.reused()

    def return_to_idle(self) -> None:
        """Bind the idle image unless a job comes soon: an earlier engine has died with a job's image bound."""
        self._after_run.unbind(None)

    def _renew_idle(self) -> None:
        """Make the container anew, which has no job, and is smaller from now on.

        A bind in progress does that, too, or requests its own job's size if it keeps the container.
        """
        if self.state is PayloadState.IDLE:
            self._after_run.unbind_now()

    def close(self) -> None:
        """Cancel all work, at the end of the pilot."""
        self._work.drop_later()
        self.abandoned_pull.close()
        for work in (None if self._bind is None else self._bind.change, self._following):
            if work is not None:
                work.cancel()

    def _claim(self) -> None:
        """Set the job of the subject from the caller's subject."""
        now = logs.subject()
        self.subject.job, self.subject.slot = now.job, now.slot
        logs.about(self.subject)

    def _bind_ended(self, bind: Bind, event: PayloadEvent) -> None:
        if bind is self._bind:
            self._machine.advance(event)

    async def _drop_unclaimed(self) -> None:
        self._work.keep_later()  # otherwise it would cancel itself
        self.give_up()

    def _free(self, bind: Bind) -> None:
        if bind is not self._bind:
            return  # it was freed already, and the unbind is in progress
        self._work.drop_later()
        bind.change.cancel()
        self._bind = None
        if self._sizes is not None:
            self._sizes.release(self.name)
        self._machine.advance(PayloadEvent.REMOVE)
        self.reuse.leave(bind, self._run)
        self._after_run.unbind(self._run)
