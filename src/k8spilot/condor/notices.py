"""What the pool is told of images, in the slot's ad: condor_status shows it to users, START acts on it."""

import time
from datetime import UTC, datetime
from typing import Final

from k8spilot.condor.slot import SlotAd
from k8spilot.model.reference import Reference
from k8spilot.payload.notices import Notices

_AVOID_SECONDS: Final = 600
"""How long jobs with images of a registry that did not answer are left to other execution points."""


class SlotNotices(Notices):
    """Tells it by the attributes K8SImageStatus, K8SAvoidedRegistry and K8SAvoidUntil."""

    def __init__(self, slot: SlotAd) -> None:
        self._slot = slot

    async def pulling(self, reference: Reference) -> None:
        """Show that the image is being pulled, and since when."""
        await self._slot.set({"K8SImageStatus": f"pulling {reference} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"})

    async def pulled(self) -> None:
        """Take that back."""
        await self._slot.set({"K8SImageStatus": None})

    async def unavailable(self, reference: Reference) -> None:
        """Take no job with an image of this registry for a while."""
        registry = reference.repository.partition("/")[0]
        await self._slot.set({"K8SAvoidedRegistry": registry, "K8SAvoidUntil": int(time.time()) + _AVOID_SECONDS})
