"""One bind of an image to a payload container, from the request for it to the removal of its job."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common import logs
from k8spilot.common.aio import is_set
from k8spilot.common.background import Background
from k8spilot.model.image import Image
from k8spilot.model.payload_state import PayloadEvent
from k8spilot.model.reference import Reference
from k8spilot.model.reuse import Tenant
from k8spilot.payload.binding.abandoned_pull import AbandonedPull
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.binding.image_change import ImageChange
from k8spilot.payload.binding.image_lookup import ImageLookup
from k8spilot.payload.listeners import SlotListener, reported
from k8spilot.payload.usage import Usage
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_UNCLAIMED_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of a payload container."""

    bind_seconds: float
    """Limit of a bind in seconds, from the registry's answer about the image."""
    idle_seconds: float
    """Seconds that it keeps the last job's image without a new job."""
    patience_seconds: float
    """Seconds to wait for an unavailable API server."""


@dataclass(frozen=True, slots=True)
class KeptContainer:
    """A container in which earlier jobs have run, and which payload-init has renewed."""

    channel: Channel
    before: Usage
    """Usage before the renewal."""


class Bind:
    """One bind. The job that claimed it owns the payload container while this is the container's current bind.

    Args:
        reference: the image.
        subject: subject of its log lines.
        work: runs it.
        make: changes the image.
        ended: called with `BOUND` or `FAIL` in the moment in which `change` is done; not called on cancellation.
        tenant: the startd's answer about the tenant of the slot; None if it was not queried.
    """

    def __init__(
        self,
        *,
        reference: Reference,
        subject: logs.Subject,
        work: Background,
        make: Callable[["Bind"], Coroutine[Any, Any, ImageChange]],
        ended: Callable[["Bind", PayloadEvent], None],
        tenant: asyncio.Future[Tenant | None] | None = None,
    ) -> None:
        self.reference = reference
        self.subject = subject
        self._make = make
        self._ended = ended
        self.tenant = tenant
        self.kept: KeptContainer | None = None
        """Container of the last job, if this bind keeps it."""
        self.confirmed: ImageChange | None = None
        """Change whose container the pod's status has shown, which is not `change` if that container did not do."""
        self.change = work.start(self._run, "bind")
        """Change of the pod, as soon as payload-init runs in the image; raises the reason of a failure."""

    def __repr__(self) -> str:
        state = "bound" if self.is_bound else "failed" if self.failed else "in progress"
        return f"<Bind {self.subject.attempt} of {self.reference}, {state}>"

    @property
    def image(self) -> Image:
        """Image of this bind. The bind must be complete."""
        return self.change.result().image

    @property
    def is_bound(self) -> bool:
        """Whether payload-init runs in the image, or did."""
        return self.change.done() and not self.change.cancelled() and self.change.exception() is None

    @property
    def known_tenant(self) -> Tenant | None:
        """Tenant of the slot; None if the startd has not answered, or knows none."""
        tenant = self.tenant
        if tenant is None or not is_set(tenant) or tenant.exception() is not None:
            return None
        return tenant.result()

    @property
    def is_anothers(self) -> bool:
        """Whether the bind's job is another one than that of the tenant, or not HTCondor's at all."""
        return self.known_tenant is None or self.known_tenant.job != self.subject.job

    @property
    def failed(self) -> bool:
        """Whether the bind has ended without the image."""
        return self.change.done() and not self.is_bound

    async def _run(self) -> ImageChange:
        try:
            change = await self._make(self)
        except Exception:
            self._ended(self, PayloadEvent.FAIL)
            raise
        self._ended(self, PayloadEvent.BOUND)
        return change


class BindSteps:
    """The steps of a bind: find the image, and keep the last container or change the pod once the node is free."""

    def __init__(
        self,
        *,
        lookup: ImageLookup,
        binder: Binder,
        abandoned_pull: AbandonedPull,
        listener: SlotListener,
        work: Background,
        timeouts: Timeouts,
        renew: Callable[[Image, Bind], Awaitable[ImageChange | None]],
    ) -> None:
        self._lookup = lookup
        self._renew = renew
        """Returns the change of the last container, if it can run the bind's job."""
        self._binder = binder
        self._abandoned_pull = abandoned_pull
        self._listener = listener
        self._work = work
        self._longest = timeouts.bind_seconds
        self.unclaimed_seconds = timeouts.patience_seconds + timeouts.bind_seconds + _UNCLAIMED_SECONDS
        """Seconds after which an unclaimed bind is dropped."""

    def admit(self, reference: Reference) -> None:
        """Raise ImageNotAllowed if the policy does not allow the image."""
        self._lookup.admit(reference)

    def is_new(self, reference: Reference) -> bool:
        """Return whether this pod has not used the image yet, so that the node pulls it."""
        return not self._lookup.has_used(reference)

    async def make(self, bind: Bind) -> ImageChange:
        """Change the payload container's image to the bind's.

        Raises:
            BindError: the image is not available, or cannot run.
        """
        reference = bind.reference
        began = asyncio.get_running_loop().time()
        async with reported(self._listener, reference, self._work.start):
            image = await self._lookup.find(reference)
            change = await self._renew(image, bind)
            if change is None:
                await self._abandoned_pull.over(reference)
                change = await self._binder.bind(image, bind.subject.attempt, self._longest)
        self._lookup.keep(image)
        logger.info("Bound %s in %.3f s.", reference, asyncio.get_running_loop().time() - began)
        return change
