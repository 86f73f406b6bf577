"""Reuse of a payload container by the next job of the same claim, where the operator has chosen it.

The next job needs no change of the pod then. What a job can leave in a container is removed or checked: its processes
are killed, its folders are emptied as before each job, its image's files cannot be written to, and payload-init looks
at what a job can change of it. In doubt, the next job gets a fresh container, as all jobs do by default.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from k8spilot.common.background import Background
from k8spilot.common.errors import PayloadLost
from k8spilot.model.image import Image
from k8spilot.model.reuse import Tenant
from k8spilot.payload.binding.bind import Bind, KeptContainer
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.binding.image_change import ImageChange
from k8spilot.payload.run import Run
from k8spilot.payload.usage import read_usage
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_TENANT_SECONDS: Final = 2.0
"""Seconds to wait for the startd's answer. It takes 0.1 s, while HTCondor transfers the job's files."""
_RENEW_SECONDS: Final = 1.0
"""Seconds to wait for payload-init's answer. It takes a millisecond, unless its job has stopped it."""

Whose = Callable[[], Awaitable[Tenant | None]]
"""Queries the startd for the slot's tenant; returns None if the startd does not know one."""


@dataclass(frozen=True, slots=True)
class _LastContainer:
    """A container whose job has ended."""

    change: ImageChange
    channel: Channel
    tenant: Tenant


class ContainerReuse:
    """Keeps the container of the last job for the next one of its claim.

    Args:
        whose: returns the tenant; None if containers are never reused.
        binder: binder of the container.
        work: runs the query.
    """

    def __init__(self, whose: Whose | None, binder: Binder, work: Background) -> None:
        self._whose = whose
        self._binder = binder
        self._work = work
        self._coming: asyncio.Future[Tenant | None] | None = None
        """Tenant of the job for which HTCondor has started a starter."""
        self._last: _LastContainer | None = None

    def expect(self) -> None:
        """Query the tenant: HTCondor has started the starter of the next job."""
        if self._whose is not None:
            whose = self._whose

            async def query() -> Tenant | None:
                return await whose()

            self._coming = self._work.start(query, "tenant")

    def announced(self) -> "asyncio.Future[Tenant | None] | None":
        """Return the expected tenant, once: the bind that begins now is for its job."""
        coming, self._coming = self._coming, None
        return coming

    def leave(self, bind: Bind, run: Run | None) -> None:
        """Keep the container of a job that is being removed, if its job has ended as it should."""
        self._last = None
        if bind.confirmed is None or bind.known_tenant is None or bind.is_anothers:
            return
        if run is not None and run.is_clean:
            self._last = _LastContainer(bind.confirmed, run.channel, bind.known_tenant)

    async def renew(self, image: Image, bind: Bind) -> ImageChange | None:
        """Return the change of the last container if the bind's job may run in it; None otherwise."""
        last, self._last = self._last, None
        if last is None or image.digest is None or image.digest != last.change.image.digest or image.volumes:
            return None
        if not self._binder.keeps(last.change) or not await _may_follow(bind, last.tenant):
            return None
        with suppress(PayloadLost, TimeoutError):
            async with asyncio.timeout(_RENEW_SECONDS):
                worn = await last.channel.renew()
            if worn:
                logger.info(
                    "Container %s is replaced, because its job has changed or left: %s.", self._binder.name, worn
                )
            elif self._binder.keeps(last.change):
                bind.kept = KeptContainer(last.channel, read_usage(last.channel.cgroup))
                return replace(last.change, image=image)
        return None


async def _may_follow(bind: Bind, last: Tenant) -> bool:
    if bind.tenant is None:
        return False
    await asyncio.wait([bind.tenant], timeout=_TENANT_SECONDS)
    return bind.known_tenant is not None and bind.known_tenant.may_follow(last)
