"""Late binding: the payload container's image is changed in the running pod.

One PATCH makes the kubelet end the container and start the next with the new image. Two sources tell that
it has: payload-init's connection, some 60 ms before the pod's status, and the status, which alone says which
image runs. `bind` returns with the first, `confirm` with both; between the two lie HTCondor's next docker calls.
"""

import asyncio
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from k8spilot.common.aio import first_of, side_by_side
from k8spilot.common.errors import (
    BindError,
    ClusterError,
    ClusterRefused,
    Displaced,
    ImageError,
    NotNow,
    PayloadLost,
    PilotError,
)
from k8spilot.kube.backoff import BackOff, retry
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import bind_of
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.payload.image_change import ChangeObserver, ImageChange
from k8spilot.payload.image_requests import ImageRequests
from k8spilot.payload_init.channel import Channel, thaw
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.registry.skopeo import Registry

logger = logging.getLogger(__name__)

_CONFIRM_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 10.0
"""How long the status has after that, from when it is known that the API server tells of it."""
_IDLE_SECONDS: Final = 60.0
"""How long the way to another image may take by way of the idle one."""
_TRIES: Final = 3
_REST_SECONDS: Final = (1.0, 30.0)
"""Pauses between tries to go back to the idle image: the first, the longest."""


class Binder:
    """Changes the image of one payload container of the own pod."""

    def __init__(
        self,
        name: str,
        pod: OwnPod,
        init_server: PayloadInitServer,
        registry: Registry,
        idle: Callable[[], str],
        groups: Callable[[], frozenset[int]],
        patience: float = 120.0,
    ) -> None:
        self.name = name
        self._pod = pod
        self._init_server = init_server
        self._idle = idle
        self._groups = groups
        """The groups that a job may be in."""
        self._patience = patience
        """How long what is away is waited for: the API server, and by the kubelet the registry; seconds."""
        self._requests = ImageRequests()
        self._changes = ChangeObserver(name, pod, registry, self._requests, patience)
        self.unfinished: Reference | None = None
        """The image of a change that was begun, and of which no container has come: the kubelet may be pulling it, and
        looks at no other change of the pod until that ends."""

    @property
    def trouble(self) -> str:
        """The words about a Kubernetes API that does not do its part; empty while it does."""
        return self._pod.connectivity.words

    async def bind(self, image: Image, attempt: str, seconds: float) -> ImageChange:
        """Change to `image`; return when payload-init runs in it.

        Args:
            image: what is known of it, with a digest.
            attempt: what makes the reference in the pod a fresh one.
            seconds: how long that may take.

        Raises:
            BindError: the kubelet cannot pull or run it, or not in that time, or it gives its jobs groups.
            ClusterRefused: the API server does not allow it.
            NotNow: it could not be had for a while, for a reason that may pass.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._persist(image, attempt)
        except TimeoutError:
            raise self._late(image.reference, seconds) from None

    def _late(self, reference: Reference, seconds: float) -> PilotError:
        """What is told of a bind that has taken too long."""
        if self.trouble:
            return ClusterError(f"image {reference} could not be bound: {self.trouble}")
        if self._requests.unheard:
            return NotNow(
                f"the node has not begun to change to image {reference} within {seconds:.0f} s; it may be overloaded, "
                "or its kubelet away"
            )
        return BindError(
            f"image {reference} did not come to run within {seconds:.0f} s; it may be too large for the node or its "
            "registry too slow"
        )

    async def _persist(self, image: Image, attempt: str) -> ImageChange:
        """Bind, again if somebody else has asked for another image meanwhile."""
        for number in range(1, _TRIES):
            try:
                return await self._bind(image, f"{attempt}-{number}")
            except Displaced as error:
                logger.warning("%s; asking for it again.", error)
        return await self._bind(image, attempt)

    async def _bind(self, image: Image, attempt: str) -> ImageChange:
        assert image.digest is not None
        wanted = image.reference.fresh(image.digest, attempt)
        # After a container that could not start, the same words in the status could be meant for it or for the next.
        has_words = self._changes.view(self._pod.pod).refused is not None
        if has_words or self._requests.may_come_late(image.digest, self._init_server.current):
            await self._pass_by_idle()
        # Until a container has come: of an image that was refused, the kubelet begins another pull after its pause.
        before, self.unfinished = self.unfinished, self.unfinished or image.reference
        try:
            binding = await self._change(image, wanted)
        except ClusterRefused:  # the kubelet hears nothing of it
            self.unfinished = before
            raise
        await self._arrive(binding, self._changes.refused(binding), self._arrived(binding))
        logger.info("Container %s runs %s %.3f s after the change.", self.name, wanted, _now() - binding.asked)
        return binding

    async def _pass_by_idle(self) -> None:
        """Change to the idle image, so that the status has no words any more, and nothing of the last image comes.

        That image may have gone from the node, and its registry may be away: words that name it are never taken for
        another image's. Those about a start name none, so that one that fails is waited for until the kubelet has
        tried again.
        """
        wanted = self._idle()
        idle = Reference.parse(wanted)
        try:
            binding = await self._change(Image(idle, idle.digest), wanted)
        except ClusterRefused as error:  # the pilot's own image: this job is not to blame
            raise ClusterError(str(error)) from error
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._arrive(binding, self._changes.unavailable(binding), self._confirmed(binding))
        except TimeoutError:
            if (words := self._changes.not_started(binding)) is not None:
                raise NotNow(
                    f"the idle image {idle} cannot be started, for which no job is to blame: {words}"
                ) from None
            logger.warning("The idle image %s has not come in %.0f s; it is done without.", idle, _IDLE_SECONDS)
        except (Displaced, ClusterError):
            raise
        except BindError as error:
            logger.warning("%s; it is done without.", error)

    async def confirm(self, binding: ImageChange) -> tuple[Channel, str]:
        """The connection and the id of the container that the pod's status shows to run the bound image.

        Raises:
            PayloadLost: it does not come to run, for which the job is not to blame.
        """
        try:
            async with side_by_side(self._confirmed(binding), self._changes.displaced(binding)) as both:
                confirmed, displaced = both
                await first_of(*both, seconds=_CONFIRM_SECONDS)
                if not confirmed.done() and not displaced.done():
                    # The watch may be a dead one, or the API server away; then nobody knows.
                    await retry(self._pod.refresh, self._patience)
                    await first_of(*both, seconds=_AGAIN_SECONDS)
                if confirmed.done():
                    found: tuple[Channel, str] = confirmed.result()
                    return found
                if displaced.done():
                    raise PayloadLost(f"{displaced.result()}; the job goes back to the queue")
        except ClusterError as error:
            raise PayloadLost(f"{error}; the job goes back to the queue") from error
        raise PayloadLost(
            f"the pod's status does not show image {binding.image.reference} running within "
            f"{_CONFIRM_SECONDS:.0f} s; the node may be overloaded, and the job goes back to the queue"
        )

    async def _confirmed(self, binding: ImageChange) -> tuple[Channel, str]:
        identity = await self._changes.running(binding)
        return await self._arrived(binding), identity

    async def _arrived(self, binding: ImageChange) -> Channel:
        channel = await self._init_server.until(lambda one: one.bind == binding.name and one.fresh)
        self.unfinished = None
        # Where the pod's supplementalGroupsPolicy is not Strict, or not known, an image's own /etc/group adds to them.
        if others := sorted(channel.groups - self._groups()):
            raise BindError(
                f"image {binding.image.reference} puts its jobs into groups that are not theirs "
                f"({', '.join(map(str, others))}); take the jobs' user (nobody, as a rule) out of these groups in its "
                "/etc/group"
            )
        return channel

    async def next_container(self, last: Channel | None) -> Channel:
        """Wait for the container after the one of `last` in which nothing has run yet."""
        return await self._init_server.until(lambda one: one is not last and one.fresh)

    def doubt(self) -> None:
        """Take the change that the pod has for unfinished: somebody else has begun it."""
        with suppress(ImageError):  # no name of an image, which nobody pulls
            self.unfinished = Reference.parse(self._changes.view(self._pod.pod).wanted)

    async def rest(self) -> None:
        """Change to the idle image, without waiting for it; tried until it is so, or cancelled."""
        await thaw((await self.ask_to_rest()).last)

    async def rested(self, binding: ImageChange) -> None:
        """Wait until the kubelet has turned to the idle image, after a change that was `unfinished`.

        There is no limit to that: the kubelet ends no pull by itself, whatever becomes of the pod.

        Raises:
            NotNow: somebody has asked for another image meanwhile, or the API server is away: it has to be asked again.
        """
        try:
            await self._arrive(binding, self._changes.unavailable(binding), self._arrived(binding))
        except NotNow:
            raise
        except BindError as error:  # words about the idle image are no longer about the other
            logger.warning("%s; it is done without.", error)
        self.unfinished = None

    async def ask_to_rest(self) -> ImageChange:
        """Ask for the idle image, until that is taken, or cancelled."""
        wanted = self._idle()
        idle = Reference.parse(wanted)

        async def change(name: str) -> dict[str, Any] | None:
            try:
                return await self._pod.set_image(self.name, wanted, name)
            except ClusterRefused as error:
                # Not even the pilot's own image: then the next job's is not to blame, and none is to come here.
                await self._pod.connectivity.note("patch", str(error))
                raise ClusterError(str(error)) from error

        return await self._changed(
            Image(idle, idle.digest),
            wanted,
            lambda name: retry(partial(change, name), math.inf, BackOff(*_REST_SECONDS)),
        )

    async def _change(self, image: Image, wanted: str) -> ImageChange:
        return await self._changed(
            image, wanted, lambda name: retry(partial(self._pod.set_image, self.name, wanted, name), self._patience)
        )

    async def _changed(
        self, image: Image, wanted: str, change: Callable[[str], Awaitable[dict[str, Any] | None]]
    ) -> ImageChange:
        """The change that `change` makes, which gets to know its name and returns what set_image does."""
        now, last, name = self._changes.view(self._pod.pod), self._init_server.current, uuid.uuid4().hex
        self._requests.add(wanted, last)
        binding = ImageChange(image, wanted, name, now, last, _now())
        then = await change(name)
        # What the watch told may have been old, after an outage: the answer has the status of the container before.
        if then is not None:
            return replace(binding, before=replace(self._changes.view(then), wanted=now.wanted))
        # It was asked for before: by a try whose answer was lost, or, an idle image without a digest, by an unbind.
        return replace(binding, name=bind_of(self._pod.pod))

    async def _arrive(
        self, binding: ImageChange, refusal: Coroutine[Any, Any, BindError], arrival: Coroutine[Any, Any, object]
    ) -> None:
        """Wait for the `arrival` of the new container, or for what the kubelet says against it.

        Raises:
            BindError: what `refusal` returned, before the container came.
            Displaced: somebody else has asked for another image.
            ClusterError: the API server is away, which the kubelet needs, too.
        """
        async with side_by_side(
            arrival,
            refusal,
            self._changes.displaced(binding),
            self._pod.connectivity.lasting(self._patience),
            self._end_last(binding),
        ) as (arrived, refused, displaced, away, _):
            await first_of(arrived, refused, displaced, away)
            if displaced.done():
                raise displaced.result()
            if not arrived.done():
                raise refused.result() if refused.done() else away.result()
            arrived.result()  # raises what has come in its place

    async def _end_last(self, binding: ImageChange) -> None:
        """See the container before end, and end it if the kubelet does not."""
        if binding.last is not None and await thaw(binding.last):
            self._requests.heard()


def _now() -> float:
    return asyncio.get_running_loop().time()
