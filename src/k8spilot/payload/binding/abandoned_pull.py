"""Wait for the node after an abandoned bind, whose image the node may still pull.

The kubelet handles the changes of a pod one after another: while it waits for a pull it sees no change of the pod, not
even the end of another container (pkg/kubelet/pod_workers.go). A registry that sends a layer byte by byte keeps the
kubelet there for any time, and the runtime reports no error, because the pull makes progress. Nothing in Kubernetes
ends such a pull, not even the deletion of the pod (the pull does not have the context of the pod's worker:
kubernetes/kubernetes#113606; docs/how-to/troubleshooting.md lists the experiments). An end of the pilot would not help
either: the kubelet would not see it, and would show a running pod. So the pilot stays, takes no job, is not ready, and
reports what people can do.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from k8spilot.common.errors import NotNow
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.listeners import AGAIN_SECONDS, SlotListener, Spawn

logger = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 5.0
"""Seconds before a wait is reported. A shorter one follows the removal of a job during its pull, which is common."""
_AGAIN_SECONDS: Final = 1.0


class AbandonedPull:
    """Waits until the node releases an image that no job needs any more, and takes no job until then."""

    def __init__(self, binder: Binder, listener: SlotListener, start: Spawn, patience: float) -> None:
        self._binder = binder
        self._listener = listener
        self._start = start
        self._patience = patience
        """Seconds that a job waits which arrived nevertheless; then it goes back to the queue."""
        self._waiting: asyncio.Future[None] | None = None
        """Task of the wait; None before the first one."""
        self.since: datetime | None = None
        """Start of the wait; None without a wait, or in its first seconds."""

    @property
    def message(self) -> str:
        """Reason why no job can start, and the remedy; empty if jobs can start."""
        image = self._binder.unfinished
        if self.since is None or image is None:
            return ""
        return (
            f"the node still pulls image {image}, or creates a container of it, which no job needs since "
            f"{self.since:%Y-%m-%d %H:%M:%S} UTC; the slot takes no job until that ends; end the transfer at the "
            "registry, or delete the pod, so that another takes its place"
        )

    def begin(self) -> None:
        """Wait for the node in the background if a change is unfinished, unless such a wait is running."""
        if self._binder.unfinished is not None and (self._waiting is None or self._waiting.done()):
            self._waiting = self._start(self._wait, "settling")

    def assume_unfinished(self) -> None:
        """Wait for the node because an earlier engine may have abandoned the bind that the pod has."""
        self._binder.assume_unfinished()
        self.begin()

    async def over(self, reference: Reference) -> None:
        """Wait until `reference` can be bound.

        Raises:
            NotNow: the wait is too long; the job that needs the image is not at fault.
        """
        if self._waiting is None or self._waiting.done():
            return
        await asyncio.wait([self._waiting], timeout=self._patience)
        if not self._waiting.done():
            why = self._binder.trouble or self.message or "the node still works on the last image"
            raise NotNow(f"image {reference} cannot be bound now: {why}")

    def close(self) -> None:
        """End the wait, at the end of the pilot."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def _wait(self) -> None:
        began = datetime.now(UTC)
        reporting = self._start(lambda: self._report(began), "notice")
        try:
            while self._binder.unfinished is not None:
                change = await self._binder.request_idle_image()
                try:
                    await self._binder.await_idle_image(change)
                except NotNow as error:
                    logger.warning("%s; requesting the idle image again.", error)
                    await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            reporting.cancel()
        seconds = (datetime.now(UTC) - began).total_seconds()
        logger.info("The node has released the image that no job needed any more, after %.1f s.", seconds)

    async def _report(self, began: datetime) -> None:
        await asyncio.sleep(_SLOW_SECONDS)
        if (image := self._binder.unfinished) is None:
            return
        self.since = began
        logger.warning("The slot takes no job at present: %s.", self.message)
        self._listener.still_pulling(image, self.message)
        try:
            while True:
                await self._listener.away("pull")
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self.since = None
            await self._listener.back("pull")
