"""After a bind that was given up: the node may go on to pull its image, and does nothing else for the pod meanwhile.

The kubelet works on a pod in one line: while it waits for a pull it looks at no change of the pod, not even at the end
of another container (pkg/kubelet/pod_workers.go). A registry that sends a layer byte by byte keeps it there for as long
as it likes, and the runtime finds nothing wrong with that, as the pull makes progress. Nothing in Kubernetes ends it,
not even the deletion of the pod (the pull does not have the context of the pod's worker: kubernetes/kubernetes#113606;
docs/how-to/troubleshooting.md has what was tried). That the pilot ended would not help, either: the kubelet would not
see that, and show a pod that runs. So the pilot stays, takes no job, is not ready, and tells people what they can do.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from k8spilot.common.errors import NotNow
from k8spilot.model.reference import Reference
from k8spilot.payload.binder import Binder
from k8spilot.payload.listeners import AGAIN_SECONDS, SlotListener, Spawn

logger = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 5.0
"""What is over sooner is an image that was removed from, as happens every day, and is not told."""
_AGAIN_SECONDS: Final = 1.0


class AbandonedPull:
    """Waits until the node has let go of an image that nobody wants any more, and lets no job come meanwhile."""

    def __init__(self, binder: Binder, listener: SlotListener, start: Spawn, patience: float) -> None:
        self._binder = binder
        self._listener = listener
        self._start = start
        self._patience = patience
        """How long a job that has come all the same waits before it goes back to the queue; seconds."""
        self._settled: asyncio.Future[None] | None = None
        self.since: datetime | None = None
        """Since when that is waited for; None while nothing is, or not for long."""

    @property
    def words(self) -> str:
        """Why no job can begin, and what can be done about it; empty when that is not so."""
        image = self._binder.unfinished
        if self.since is None or image is None:
            return ""
        return (
            f"the node still pulls image {image}, or makes a container of it, which no job wants since "
            f"{self.since:%Y-%m-%d %H:%M:%S} UTC; the slot takes no job until that ends; end it at the registry, or "
            "delete the pod to have another in its place"
        )

    def begin(self) -> None:
        """Wait for the node, in the background, if a change is unfinished and that is not done already."""
        if self._binder.unfinished is not None and (self._settled is None or self._settled.done()):
            self._settled = self._start(self._settle, "settling")

    def doubt(self) -> None:
        """Wait for the node, too: an engine before this one may have given up the bind that the pod has."""
        self._binder.doubt()
        self.begin()

    async def over(self, reference: Reference) -> None:
        """Wait until `reference` can be bound.

        Raises:
            NotNow: that takes too long; it is not the fault of the job that wants it.
        """
        if self._settled is None or self._settled.done():
            return
        await asyncio.wait([self._settled], timeout=self._patience)
        if not self._settled.done():
            why = self._binder.trouble or self.words or "the node is busy with the last one"
            raise NotNow(f"image {reference} cannot be bound now: {why}")

    def close(self) -> None:
        """Wait no longer, at the end of the pilot."""
        if self._settled is not None:
            self._settled.cancel()

    async def _settle(self) -> None:
        began = datetime.now(UTC)
        telling = self._start(lambda: self._tell(began), "notice")
        try:
            while self._binder.unfinished is not None:
                binding = await self._binder.ask_to_rest()
                try:
                    await self._binder.rested(binding)
                except NotNow as error:
                    logger.warning("%s; asking for the idle image again.", error)
                    await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            telling.cancel()
        seconds = (datetime.now(UTC) - began).total_seconds()
        logger.info("The node has let go of the image that no job wanted any more, after %.1f s.", seconds)

    async def _tell(self, began: datetime) -> None:
        await asyncio.sleep(_SLOW_SECONDS)
        if (image := self._binder.unfinished) is None:
            return
        self.since = began
        logger.warning("No job is taken for now: %s.", self.words)
        self._listener.still_pulling(image, self.words)
        try:
            while True:
                await self._listener.away("pull")
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self.since = None
            await self._listener.back("pull")
