"""What is told in Events, and how often: a slot may run a job a second, and its users may submit nonsense all day."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from k8spilot.kube.events import Events
from k8spilot.model.event_reasons import EventReason

logger = logging.getLogger(__name__)

_BURST: Final = 10
_REFILL_SECONDS: Final = 60.0
"""Events in a row, and how long it takes until there may be another one."""
_KNOWN: Final = 256
_WAITING: Final = 32
"""Events that wait for an API server that is away."""


@dataclass(slots=True)
class _Event:
    """One that is told, or was."""

    reason: EventReason
    message: str
    name: str = ""
    """In the API, once it is there."""
    count: int = 1
    told: int = 0
    """How many of them the API knows of."""


class EventRecorder:
    """Makes Events in the background, no more than one a minute in the long run.

    What has been told before is counted in the same Event. What comes too often is left out, and `suppressed` called.
    """

    def __init__(self, events: Events, suppressed: Callable[[], None] = lambda: None) -> None:
        self._events = events
        self._suppressed = suppressed
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_WAITING)
        self._known: OrderedDict[tuple[str, str], _Event] = OrderedDict()
        self._left = float(_BURST)
        self._refilled = asyncio.get_running_loop().time()

    def tell(self, reason: EventReason, message: str, *, key: str = "", always: bool = False) -> None:
        """Tell something; returns at once.

        Args:
            reason: one of the table of Events.
            message: a sentence, for people; of a key, the first counts.
            key: what is the same when it comes again (an image); without one, the message.
            always: whether it is told however much was told already.
        """
        known = self._known.setdefault((reason, key or message), _Event(reason, message, count=0))
        self._known.move_to_end((reason, key or message))
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        known.count += 1
        if always or self._may():
            try:
                self._queue.put_nowait(known)
            except asyncio.QueueFull:
                self._suppressed()
        else:
            self._suppressed()

    def tell_once(self, reason: EventReason, message: str, key: str) -> None:
        """Tell what is worth an Event the first time only."""
        if (reason, key) not in self._known:
            self.tell(reason, message, key=key)

    async def run(self) -> None:
        """Make what is told, one after another, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._make(event)
            except Exception:
                logger.exception("The Event %s could not be made; this is a fault of k8spilot.", event.reason)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Wait until all is made."""
        await self._queue.join()

    async def _make(self, event: _Event) -> None:
        if event.told >= event.count:
            return
        event.told = event.count
        # The API server forgets Events, after an hour unless it is told otherwise.
        if not (event.name and await self._events.tell_again(event.name, event.reason, event.count)):
            event.name = await self._events.tell(event.reason, event.message)

    def _may(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._left = min(_BURST, self._left + (now - self._refilled) / _REFILL_SECONDS)
        self._refilled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
