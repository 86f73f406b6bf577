"""Listeners for binds and jobs: the pool's view, metrics, Events and the status."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Literal

from k8spilot.common.aio import is_set_within
from k8spilot.common.errors import ImageNotNow, NotHere, PilotError
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.outcome import Outcome
from k8spilot.model.reference import Reference

logger = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 3.0
"""Seconds after which a bind counts as a pull and is reported to users."""
_AWAY_SECONDS: Final = 3.0
"""Seconds before an outage is reported. Shorter ones are usual with every API server."""
AGAIN_SECONDS: Final = 60.0
"""Seconds between reports of a continuing outage."""
CLOSED_SECONDS: Final = 3 * AGAIN_SECONDS
"""Seconds for which a reported outage counts: an engine that died may not have withdrawn it."""
SHORTAGE_SECONDS: Final = 20.0
"""Seconds for which a temporary shortage of the node counts."""

Reason = Literal["api", "pull", "remains", "lost"]
"""Reason why no job is taken: the Kubernetes API, the pull of an image that no job needs any more, a job's leftovers,
jobs that were lost one after another."""

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]], str], asyncio.Future[None]]
"""Starts a guarded task with a name."""


class SlotListener:
    """Base class of listeners for the events of a slot. Each method does nothing here; a listener overrides some.

    condor/ads/publisher.py publishes them to the pool, telemetry/slot_recorder.py counts and records them. Methods that
    are not coroutines return at once. logs.subject() is the job of the event.
    """

    async def pulling(self, reference: Reference) -> None:
        """Handle the start of a long pull of the image."""

    async def pulled(self) -> None:
        """Handle the end of that pull, successful or not."""

    async def bound(self, reference: Reference) -> None:
        """Handle a successful bind."""

    async def unavailable(self, reference: Reference, error: ImageNotNow) -> None:
        """Handle an image that was not available for too long; the job is not at fault."""

    async def left(self, reference: Reference, error: NotHere) -> None:
        """Handle a job that goes back to the queue, because its image cannot run at this site."""

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """Handle that no image can be bound for `seconds`; repeated every `AGAIN_SECONDS` meanwhile."""

    async def back(self, why: Reason) -> None:
        """Handle the end of that reason; another reason may continue."""

    async def black_hole(self, seconds: float, words: str) -> None:
        """Handle that jobs fail one after another, so that the slot takes none for `seconds`."""

    async def excess(self, words: str) -> None:
        """Handle a job that has used more disk than it may: HTCondor is to hold it with these words.

        After the job's end the method is called again with an empty text.
        """

    def still_pulling(self, reference: Reference, words: str) -> None:
        """Handle a pull that no job needs any more; `words` describe the consequences."""

    def bind_ended(self, reference: Reference, seconds: float, error: BaseException | None) -> None:
        """Handle the end of a bind after `seconds`.

        `error` is the reason of a failure: CancelledError if no job needs the image any more.
        """

    def reused(self) -> None:
        """Handle a job that has the container of the last one."""

    def ended(self, outcome: Outcome) -> None:
        """Handle the result of a job."""

    def lost(self, why: str) -> None:
        """Handle a job without a result, which goes back to the queue."""

    def held(self, error: PilotError, at: Literal["create", "start", "end"]) -> None:
        """Handle a refused or ended container: HTCondor holds the job with this message."""


class Fanout(SlotListener):
    """Calls several listeners, in their order; a failure of one is logged and costs neither the others nor the job.

    The code below creates its methods from SlotListener's.
    """

    def __init__(self, listeners: Sequence[SlotListener]) -> None:
        self.listeners = listeners


@contextmanager
def _guarded(listener: SlotListener, name: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("%s.%s failed; this is a defect of k8spilot.", type(listener).__name__, name)


def _call_all(name: str, *, awaits: bool) -> Callable[..., Any]:
    """Return a method that calls the method of that name on all listeners."""

    def call(self: Fanout, *arguments: Any, **named: Any) -> None:
        for listener in self.listeners:
            with _guarded(listener, name):
                getattr(listener, name)(*arguments, **named)

    async def call_and_wait(self: Fanout, *arguments: Any, **named: Any) -> None:
        for listener in self.listeners:
            with _guarded(listener, name):
                await getattr(listener, name)(*arguments, **named)

    return call_and_wait if awaits else call


for _name, _method in vars(SlotListener).items():
    if inspect.isfunction(_method):
        setattr(Fanout, _name, _call_all(_name, awaits=inspect.iscoroutinefunction(_method)))


@asynccontextmanager
async def reported(listener: SlotListener, reference: Reference, spawn: Spawn) -> AsyncIterator[None]:
    """Report the bind that the context makes."""
    ended = asyncio.Event()
    spawn(lambda: _report_slow(listener, reference, ended), "notice")
    began = asyncio.get_running_loop().time()
    failure: BaseException | None = None
    try:
        yield
        spawn(lambda: listener.bound(reference), "notice")
    except (Exception, asyncio.CancelledError) as error:
        failure = error
        if isinstance(error, ImageNotNow):
            unavailable = error
            spawn(lambda: listener.unavailable(reference, unavailable), "notice")
        raise
    finally:
        ended.set()
        listener.bind_ended(reference, asyncio.get_running_loop().time() - began, failure)


async def _report_slow(listener: SlotListener, reference: Reference, ended: asyncio.Event) -> None:
    """Report a bind that takes long, and its end.

    The end of the bind does not cancel the report. A cancellation would kill HTCondor's tool that updates the ad, and
    the startd would log an error for the connection of the killed tool.
    """
    if await is_set_within(ended, _SLOW_SECONDS):
        return
    try:
        await listener.pulling(reference)
        await ended.wait()  # as long as the bind takes, which has limits of its own
    finally:
        await listener.pulled()


async def report_outages(pod: OwnPod, listener: SlotListener) -> None:
    """Report each outage of the API server, and each refusal of binds, for as long as the pilot runs."""
    while True:
        logger.warning("The slot takes no job at present: %s.", await pod.connectivity.lasting(_AWAY_SECONDS))
        while True:
            await listener.away("api")
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await pod.connectivity.over()
                    break
        await listener.back("api")
        logger.info("The Kubernetes API works again; the slot takes jobs.")
