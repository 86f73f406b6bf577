"""What the pool is told in the slot's ad, of images and the API server: users see it, START acts on it."""

import time
from datetime import UTC, datetime
from typing import Final

from k8spilot.condor.node_images import NodeImages
from k8spilot.condor.startd_ad import StartdAd
from k8spilot.model.reference import Reference
from k8spilot.payload.listeners import CLOSED_SECONDS, Reason, SlotListener

_AVOID_SECONDS: Final = 600
"""How long jobs with images of a registry that did not answer are left to other execution points."""


class AdPublisher(SlotListener):
    """Tells it by the attributes K8SImageStatus, K8SAvoidedRegistry, K8SAvoidUntil and K8SApiAwayUntil."""

    def __init__(self, slot: StartdAd, images: NodeImages) -> None:
        self.slot = slot
        self.images = images
        self._closed: dict[Reason, int] = {}
        """Why no job is taken, and until when (seconds since the epoch)."""

    async def pulling(self, reference: Reference) -> None:
        """Show that the image is being pulled, and since when."""
        await self.slot.set({"K8SImageStatus": f"pulling {reference} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"})

    async def pulled(self) -> None:
        """Take that back."""
        await self.slot.set({"K8SImageStatus": None})

    async def bound(self, reference: Reference) -> None:
        """Let jobs prefer this slot for the image from now on."""
        await self.images.bound(reference)

    async def unavailable(self, reference: Reference) -> None:
        """Take no job with an image of this registry for a while."""
        registry = reference.repository.partition("/")[0]
        await self.slot.set({"K8SAvoidedRegistry": registry, "K8SAvoidUntil": int(time.time()) + _AVOID_SECONDS})

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """Take no job for that long."""
        self._closed[why] = max(self._closed.get(why, 0), int(time.time() + seconds))
        await self._close()

    async def back(self, why: Reason) -> None:
        """Take jobs again, unless another reason is against it."""
        self._closed.pop(why, None)
        await self._close()

    async def _close(self) -> None:
        until = max(self._closed.values(), default=0)
        await self.slot.set({"K8SApiAwayUntil": until if until > time.time() else None})
