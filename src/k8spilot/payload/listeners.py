"""What the pool, metrics, Events and the status are told of binds and jobs."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal

from k8spilot.common.errors import ImageNotNow, PilotError
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.outcome import Outcome
from k8spilot.model.reference import Reference

logger = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 3.0
"""A bind that takes longer is a pull, and users are told of it."""
_AWAY_SECONDS: Final = 3.0
"""A trouble that is over sooner is one of those that come with every API server, and is not told."""
AGAIN_SECONDS: Final = 60.0
"""How often it is told that the trouble goes on."""
CLOSED_SECONDS: Final = 3 * AGAIN_SECONDS
"""How long the word of a trouble counts: an engine that died may not have taken it back."""
SHORTAGE_SECONDS: Final = 20.0
"""As that, for what the node has none of for the moment."""

Reason = Literal["api", "pull", "remains"]
"""Why no image can be bound: the Kubernetes API, the pull of an image that nobody wants any more, what a job left."""

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]], str], asyncio.Future[None]]
"""Starts a guarded task with a name."""


class SlotListener:
    """Is told what happens in a slot. Each method does nothing here; a listener has those that it is for.

    condor/ad_publisher.py tells the pool, telemetry/slot_recorder.py counts and records. A method that is not a
    coroutine takes no time. logs.subject() knows the job that it is about.
    """

    async def pulling(self, reference: Reference) -> None:
        """The node pulls the image, which takes a while."""

    async def pulled(self) -> None:
        """That pull has ended, well or not."""

    async def bound(self, reference: Reference) -> None:
        """The image runs."""

    async def unavailable(self, reference: Reference) -> None:
        """The image's registry did not give it; the job is not to blame."""

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """No image can be bound for `seconds`; told again every `AGAIN_SECONDS` while that is so."""

    async def back(self, why: Reason) -> None:
        """That reason is over; another one may go on."""

    def still_pulling(self, reference: Reference, words: str) -> None:
        """The node pulls an image for which no job waits any more; `words` say what that means."""

    def bind_ended(self, reference: Reference, seconds: float, error: BaseException | None) -> None:
        """A bind has ended after `seconds`, with `error` if it failed: CancelledError when no job waits any more."""

    def ended(self, outcome: Outcome) -> None:
        """A job has a result."""

    def lost(self, why: str) -> None:
        """A job has no result, and goes back to the queue."""

    def held(self, error: PilotError, at: Literal["create", "start"]) -> None:
        """HTCondor was refused a container for its job, which it will hold with these words."""


class Fanout(SlotListener):
    """Tells several listeners, in their order. Its methods are made of SlotListener's, below."""

    def __init__(self, listeners: Sequence[SlotListener]) -> None:
        self.listeners = listeners


def _tells_all(name: str, *, awaits: bool) -> Callable[..., Any]:
    """A method that calls the one of that name on all listeners."""

    def tell(self: Fanout, *arguments: Any, **named: Any) -> None:
        for listener in self.listeners:
            getattr(listener, name)(*arguments, **named)

    async def tell_and_wait(self: Fanout, *arguments: Any, **named: Any) -> None:
        for listener in self.listeners:
            await getattr(listener, name)(*arguments, **named)

    return tell_and_wait if awaits else tell


for _name, _method in vars(SlotListener).items():
    if inspect.isfunction(_method):
        setattr(Fanout, _name, _tells_all(_name, awaits=inspect.iscoroutinefunction(_method)))


@asynccontextmanager
async def reported(listener: SlotListener, reference: Reference, spawn: Spawn) -> AsyncIterator[None]:
    """Tell of a bind that the context makes."""
    telling = spawn(lambda: _tell_of_slow(listener, reference), "notice")
    began = asyncio.get_running_loop().time()
    failure: BaseException | None = None
    try:
        yield
        spawn(lambda: listener.bound(reference), "notice")
    except (Exception, asyncio.CancelledError) as error:
        failure = error
        if isinstance(error, ImageNotNow):
            spawn(lambda: listener.unavailable(reference), "notice")
        raise
    finally:
        telling.cancel()
        listener.bind_ended(reference, asyncio.get_running_loop().time() - began, failure)


async def _tell_of_slow(listener: SlotListener, reference: Reference) -> None:
    await asyncio.sleep(_SLOW_SECONDS)
    try:
        await listener.pulling(reference)
        await asyncio.Event().wait()  # until it is cancelled, at the end of the bind
    finally:
        await listener.pulled()


async def tell_of_outages(pod: OwnPod, listener: SlotListener) -> None:
    """Tell of each time that the API server is away, or does not let this pilot bind, for as long as the pilot runs."""
    while True:
        logger.warning("No job is taken for now: %s.", await pod.connectivity.lasting(_AWAY_SECONDS))
        while True:
            await listener.away("api")
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await pod.connectivity.over()
                    break
        await listener.back("api")
        logger.info("The Kubernetes API does its part again; jobs are taken.")
