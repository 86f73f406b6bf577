"""The event recorder: creates Kubernetes Events, and limits their rate.

A slot may run a job a second, and its users may submit invalid jobs all day.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from k8spilot.common.lru import LruDict
from k8spilot.kube.events import Events
from k8spilot.model.event_reasons import EventReason

logger = logging.getLogger(__name__)

_BURST: Final = 10
_REFILL_SECONDS: Final = 60.0
"""Burst of Events, and the seconds until the next Event is allowed."""
_MOST_KNOWN: Final = 256
_MOST_WAITING: Final = 32
"""Events that wait for an unavailable API server."""


@dataclass(slots=True)
class _Event:
    """An Event that is created, or was."""

    reason: EventReason
    message: str
    key: str
    """Identifies identical Events of one reason."""
    count: int = 0
    """Occurrences in the life of this engine."""
    published: int = 0
    """Occurrences that were published."""
    earlier: int | None = None
    """Occurrences before this engine; None until the Event has been created."""


class EventRecorder:
    """Creates Events in the background, at most one a minute in the long run.

    A repeated Event is counted in the existing one. An Event above the limit is dropped, and `suppressed` is called.
    """

    def __init__(self, events: Events, suppressed: Callable[[], None] = lambda: None) -> None:
        self._events = events
        self._suppressed = suppressed
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_MOST_WAITING)
        self._known: LruDict[tuple[str, str], _Event] = LruDict(_MOST_KNOWN)
        self._left = float(_BURST)
        self._refilled = asyncio.get_running_loop().time()

    def record(self, reason: EventReason, message: str, *, key: str = "", always: bool = False) -> None:
        """Record an event; return at once.

        Args:
            reason: one of the table of Events.
            message: a sentence for people; the first message of a key counts.
            key: identifies repeated events (an image); by default the message.
            always: create the Event in spite of the limit.
        """
        key = key or message
        known = self._known[reason, key] = self._known.get((reason, key)) or _Event(reason, message, key)
        known.count += 1
        if always or self._is_allowed():
            try:
                self._queue.put_nowait(known)
            except asyncio.QueueFull:
                self._suppressed()
        else:
            self._suppressed()

    def record_once(self, reason: EventReason, message: str, key: str) -> None:
        """Record an event only the first time."""
        if (reason, key) not in self._known:
            self.record(reason, message, key=key)

    async def run(self) -> None:
        """Create the recorded Events, one after another, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._create(event)
            except Exception:
                logger.exception("The Event %s could not be created; this is a defect of k8spilot.", event.reason)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Wait until all Events are created."""
        await self._queue.join()

    async def _create(self, event: _Event) -> None:
        if event.published >= event.count:
            return
        count, new = event.count, event.count - event.published
        event.published = count
        # The API server drops Events, by default after an hour.
        if event.earlier is not None and await self._events.publish_again(
            event.reason, event.message, event.earlier + count, key=event.key
        ):
            return
        total = await self._events.publish(event.reason, event.message, key=event.key, count=new)
        event.earlier = total - count if total else None

    def _is_allowed(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._left = min(_BURST, self._left + (now - self._refilled) / _REFILL_SECONDS)
        self._refilled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
