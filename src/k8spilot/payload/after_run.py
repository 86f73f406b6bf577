"""Work after a job: report its end, unlock the files of a lost job, and return to the idle image."""

import asyncio
from functools import partial

from k8spilot.common.background import Background
from k8spilot.model.outcome import Outcome
from k8spilot.payload.binding.abandoned_pull import AbandonedPull
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.container_sizes import ContainerSizes
from k8spilot.payload.listeners import SlotListener
from k8spilot.payload.run import Run
from k8spilot.payload.scrub.scrubber import ScrubRunner


class AfterRun:
    """Work after each job of a payload container, until the next one."""

    def __init__(
        self,
        *,
        binder: Binder,
        scrub_runner: ScrubRunner,
        abandoned_pull: AbandonedPull,
        work: Background,
        listener: SlotListener,
        idle_seconds: float,
        sizes: ContainerSizes | None,
    ) -> None:
        self._binder = binder
        self._sizes = sizes
        self._needs_container = scrub_runner.needs_container
        self._scrub_runner = scrub_runner
        self._abandoned_pull = abandoned_pull
        self._work = work
        self._listener = listener
        self._idle_seconds = idle_seconds
        self._rescue: asyncio.Future[None] | None = None

    def expect_end(self, run: Run) -> None:
        """Report the end of `run`."""
        run.ended.add_done_callback(lambda ended: self._report(run, ended))

    def report_excess(self, words: str) -> None:
        """Report that the job has used more disk than it may."""
        self._work.start(partial(self._listener.excess, words), "notice")

    def unbind(self, run: Run | None) -> None:
        """Return to the idle image. `run` is the run of the last job, if its command was released."""
        if self._binder.unfinished is not None:
            self._abandoned_pull.begin()
            return
        # If the removal needs a container, replace a lost one at once: the kubelet would delay its restart.
        is_lost = self._needs_container and run is not None and not run.channel.still_open()
        is_over = run is not None and run.exceeds
        if is_over:  # before the kubelet measures the volumes, and evicts the pod
            self._work.start(self._scrub_runner.before_files, "scrub")
            self.report_excess("")
        self._work.start_later(0 if is_lost or is_over else self._idle_seconds, "unbind", self._shrink_and_unbind)

    def unbind_now(self) -> None:
        """Return to the idle image in a new container, whose size is smaller than that of the present one."""
        if self._binder.unfinished is None:
            self._work.start_later(0, "unbind", self._binder.unbind)

    async def _shrink_and_unbind(self) -> None:
        if self._sizes is not None:
            await self._sizes.shrink(self._binder.name)
        await self._binder.unbind()

    def end(self) -> None:
        """Cancel the pending work: a bind starts, whose container is not for the last job."""
        self._work.drop_later()
        if self._rescue is not None:
            self._rescue.cancel()

    def _report(self, run: Run, ended: asyncio.Future[Outcome]) -> None:
        if ended.cancelled():
            return
        if (error := ended.exception()) is None:
            self._listener.ended(ended.result())
            return
        self._listener.lost(str(error))
        coming = partial(self._binder.next_container, run.channel)
        self._rescue = self._work.start(lambda: self._scrub_runner.rescue(coming), "rescue")
