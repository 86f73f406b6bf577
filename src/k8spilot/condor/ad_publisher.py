"""Publication of images and of the API server's state in the slot's ad, for users and for START."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Final

from k8spilot.common import logs
from k8spilot.common.errors import ImageNotNow, NotHere
from k8spilot.condor.node_images import NodeImages
from k8spilot.condor.startd_ad import StartdAd
from k8spilot.model.avoided_images import AvoidedImages
from k8spilot.model.reference import Reference
from k8spilot.payload.listeners import CLOSED_SECONDS, Reason, SlotListener

_SLACK_SECONDS: Final = 0.05
"""Seconds after the end of an avoided name: the event loop has another clock."""


class AdPublisher(SlotListener):
    """Publishes K8SImageStatus, K8SAvoided..., K8SBlackHoleUntil, K8SApiAwayUntil and K8SHold..."""

    def __init__(self, slot: StartdAd, images: NodeImages) -> None:
        self.slot = slot
        self.images = images
        self._avoided = AvoidedImages()
        self._added = asyncio.Event()
        """Set when a name was added to the avoided ones."""
        self._closed: dict[Reason, int] = {}
        """Reasons for taking no job -> end of each (seconds since the epoch)."""

    async def pulling(self, reference: Reference) -> None:
        """Publish that the image is being pulled, and since when."""
        await self.slot.set({"K8SImageStatus": f"pulling {reference} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"})

    async def pulled(self) -> None:
        """Withdraw the status of the image."""
        await self.slot.set({"K8SImageStatus": None})

    async def bound(self, reference: Reference) -> None:
        """Let jobs prefer this slot for the image from now on."""
        await self.images.bound(reference)

    async def unavailable(self, reference: Reference, error: ImageNotNow) -> None:
        """Take no job with that image, or with one of that registry, for a while."""
        await self._avoid(reference.part(error.scope))

    async def left(self, reference: Reference, error: NotHere) -> None:
        """Take no job with that image, or with one of that repository or registry, for a while."""
        await self._avoid(reference.part(error.scope))

    async def black_hole(self, seconds: float, words: str) -> None:
        """Take no job for `seconds`, and say so with OSPool's attribute IsBlackHole, which is an expression of this."""
        await self.slot.set({"K8SBlackHoleUntil": int(time.time() + seconds)})

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """Take no job for `seconds`."""
        self._closed[why] = max(self._closed.get(why, 0), int(time.time() + seconds))
        await self._close()

    async def back(self, why: Reason) -> None:
        """Take jobs again, unless another reason remains."""
        self._closed.pop(why, None)
        await self._close()

    async def _avoid(self, name: str) -> None:
        self._avoided.add(name, time.time())
        self._added.set()
        await self._publish_avoided()

    async def _publish_avoided(self) -> None:
        ends = self._avoided.at(time.time())
        names, until = (",".join(ends), int(max(ends.values()))) if ends else (None, None)
        await self.slot.set({"K8SAvoidedImages": names, "K8SAvoidUntil": until})

    async def withdraw_avoided(self) -> None:
        """Withdraw each avoided name at its end, for as long as the pilot runs. K8SAvoidUntil is the last end."""
        while True:
            self._added.clear()
            ends = self._avoided.at(time.time())
            try:
                async with asyncio.timeout(min(ends.values()) - time.time() + _SLACK_SECONDS if ends else None):
                    await self._added.wait()
            except TimeoutError:
                await self._publish_avoided()

    async def excess(self, words: str) -> None:
        """Let the startd hold the job, or withdraw that after the job's end (words is empty then)."""
        job = logs.subject().job if words else None
        since = int(time.time()) if words else None
        await self.slot.set({"K8SHoldJob": job, "K8SHoldSince": since, "K8SHoldReason": words or None})

    async def _close(self) -> None:
        until = max(self._closed.values(), default=0)
        await self.slot.set({"K8SApiAwayUntil": until if until > time.time() else None})
