"""Publication of images and of the API server's state in the slots' ads, for users and for START."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from k8spilot.common import logs
from k8spilot.common.aio import is_set_within
from k8spilot.common.errors import ImageNotNow, NotHere
from k8spilot.condor.ads.node_images import NodeImages
from k8spilot.condor.ads.startd_ad import Scalar, StartdAd
from k8spilot.condor.configuration.per_slot_attributes import SLOTS, slot_key
from k8spilot.model.avoided_images import AvoidedImages
from k8spilot.model.reference import Reference
from k8spilot.payload.listeners import CLOSED_SECONDS, Reason, SlotListener

_SLACK_SECONDS: Final = 0.05
"""Seconds after the end of an avoided name: the event loop has another clock."""
_PILOT: Final = 0
"""In place of a slot's number: all slots."""


class PublishedAds:
    """Attributes that the ads of a pilot's slots have at present."""

    def __init__(self, startd_ad: StartdAd, images: NodeImages) -> None:
        self._startd_ad = startd_ad
        self.images = images
        self._avoided = AvoidedImages()
        self._added = asyncio.Event()
        """Set when a name was added to the avoided ones."""
        self._closed: dict[tuple[int, Reason], int] = {}
        """Slot and reason for taking no job -> end (seconds since the epoch)."""
        self._slots: dict[str, dict[str, Scalar]] = {}
        """Attributes of single slots, by `slot_key`."""

    async def of_slot(self, number: int, attributes: Mapping[str, Scalar]) -> None:
        """Set attributes of one slot."""
        self._slots.setdefault(slot_key(number), {}).update(attributes)
        await self._startd_ad.set({SLOTS: self._slots})

    async def black_hole(self, seconds: float) -> None:
        """Take no job for `seconds`, and say so with OSPool's attribute IsBlackHole, which is an expression of this."""
        await self._startd_ad.set({"K8SBlackHoleUntil": int(time.time() + seconds)})

    async def close(self, number: int, why: Reason, seconds: float) -> None:
        """Take no job for `seconds`, because of a slot."""
        self._closed[number, why] = max(self._closed.get((number, why), 0), int(time.time() + seconds))
        await self._publish_closed()

    async def open(self, number: int, why: Reason) -> None:
        """Take jobs again, unless another reason remains."""
        self._closed.pop((number, why), None)
        await self._publish_closed()

    async def _publish_closed(self) -> None:
        until = max(self._closed.values(), default=0)
        await self._startd_ad.set({"K8SApiAwayUntil": until if until > time.time() else None})

    async def avoid(self, name: str) -> None:
        """Take no job with a name of an image, repository or registry for a while."""
        self._avoided.add(name, time.time())
        self._added.set()
        await self._publish_avoided()

    async def _publish_avoided(self) -> None:
        ends = self._avoided.at(time.time())
        names, until = (",".join(ends), int(max(ends.values()))) if ends else (None, None)
        await self._startd_ad.set({"K8SAvoidedImages": names, "K8SAvoidUntil": until})

    async def withdraw_avoided(self) -> None:
        """Withdraw each avoided name at its end, for as long as the pilot runs. K8SAvoidUntil is the last end."""
        while True:
            self._added.clear()
            ends = self._avoided.at(time.time())
            seconds = min(ends.values()) - time.time() + _SLACK_SECONDS if ends else None
            if not await is_set_within(self._added, seconds):
                await self._publish_avoided()


class AdPublisher(SlotListener):
    """Publishes the events of one slot."""

    def __init__(self, ads: PublishedAds, number: int = _PILOT) -> None:
        """Initialize.

        Args:
            ads: the ads of the pilot's slots.
            number: number of the slot's payload container; 0 for events of the whole pilot.
        """
        self._ads = ads
        self._number = number
        self._pulls = 0
        """Pulls that are reported and not withdrawn. The report of one can end after that of the next has begun."""

    async def pulling(self, reference: Reference) -> None:
        """Publish that the image is being pulled, and since when."""
        self._pulls += 1
        words = f"pulling {reference} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        await self._ads.of_slot(self._number, {"ImageStatus": words})

    async def pulled(self) -> None:
        """Withdraw the status of the image, unless it is that of a later pull."""
        self._pulls -= 1
        if self._pulls == 0:
            await self._ads.of_slot(self._number, {"ImageStatus": None})

    async def bound(self, reference: Reference) -> None:
        """Let jobs prefer this pilot for the image from now on."""
        await self._ads.images.bound(reference)

    async def unavailable(self, reference: Reference, error: ImageNotNow) -> None:
        """Take no job with that image, or with one of that registry, for a while."""
        await self._ads.avoid(reference.part(error.scope))

    async def left(self, reference: Reference, error: NotHere) -> None:
        """Take no job with that image, or with one of that repository or registry, for a while."""
        await self._ads.avoid(reference.part(error.scope))

    async def black_hole(self, seconds: float, words: str) -> None:
        """Take no job for `seconds`."""
        await self._ads.black_hole(seconds)

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """Take no job for `seconds`."""
        await self._ads.close(self._number, why, seconds)

    async def back(self, why: Reason) -> None:
        """Take jobs again, unless another reason remains."""
        await self._ads.open(self._number, why)

    async def excess(self, words: str) -> None:
        """Let the startd hold the job, or withdraw that after the job's end (words is empty then)."""
        job = logs.subject().job if words else None
        since = int(time.time()) if words else None
        await self._ads.of_slot(self._number, {"HoldJob": job, "HoldSince": since, "HoldReason": words or None})
