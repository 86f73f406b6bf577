"""What others are told of binds and jobs: the pool, and whoever looks at metrics, Events and the status."""

import asyncio
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
    """Who is told; here, nobody. condor/ad_publisher.py tells the pool, telemetry/slot_recorder.py keeps account.

    What is not a coroutine is told in passing, and takes no time. Which job it is about, logs.subject() knows.
    """

    async def pulling(self, reference: Reference) -> None:
        """Tell that the image is on its way, and that this takes a while."""

    async def pulled(self) -> None:
        """Tell that it is there, or will not come."""

    async def bound(self, reference: Reference) -> None:
        """Tell that it runs."""

    async def unavailable(self, reference: Reference) -> None:
        """Tell that its registry did not give it, and that the job is not to blame."""

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """Tell that no image can be bound for `seconds`; told again every `AGAIN_SECONDS` while that is so."""

    async def back(self, why: Reason) -> None:
        """Take that back; another reason may go on."""

    def still_pulling(self, reference: Reference, words: str) -> None:
        """Tell that the node pulls an image which nobody wants any more, and what that means."""

    def bind_ended(self, reference: Reference, seconds: float, error: BaseException | None) -> None:
        """Tell how long a bind took, and how it failed, if so; CancelledError: nobody wants it any more."""

    def ended(self, outcome: Outcome) -> None:
        """Tell of a job's result."""

    def lost(self, why: str) -> None:
        """Tell that a job has no result, and goes back to the queue."""

    def held(self, error: PilotError, at: Literal["create", "start"]) -> None:
        """Tell that HTCondor was refused a container for its job, which it will hold with these words."""


class Fanout(SlotListener):
    """Tells them all."""

    def __init__(self, others: Sequence[SlotListener]) -> None:
        self._others = others

    async def pulling(self, reference: Reference) -> None:
        """Tell it."""
        for one in self._others:
            await one.pulling(reference)

    async def pulled(self) -> None:
        """Tell it."""
        for one in self._others:
            await one.pulled()

    async def bound(self, reference: Reference) -> None:
        """Tell it."""
        for one in self._others:
            await one.bound(reference)

    async def unavailable(self, reference: Reference) -> None:
        """Tell it."""
        for one in self._others:
            await one.unavailable(reference)

    async def away(self, why: Reason, seconds: float = CLOSED_SECONDS) -> None:
        """Tell it."""
        for one in self._others:
            await one.away(why, seconds)

    async def back(self, why: Reason) -> None:
        """Tell it."""
        for one in self._others:
            await one.back(why)

    def still_pulling(self, reference: Reference, words: str) -> None:
        """Tell it."""
        for one in self._others:
            one.still_pulling(reference, words)

    def bind_ended(self, reference: Reference, seconds: float, error: BaseException | None) -> None:
        """Tell it."""
        for one in self._others:
            one.bind_ended(reference, seconds, error)

    def ended(self, outcome: Outcome) -> None:
        """Tell it."""
        for one in self._others:
            one.ended(outcome)

    def lost(self, why: str) -> None:
        """Tell it."""
        for one in self._others:
            one.lost(why)

    def held(self, error: PilotError, at: Literal["create", "start"]) -> None:
        """Tell it."""
        for one in self._others:
            one.held(error, at)


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
