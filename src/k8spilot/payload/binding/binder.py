"""Late binding: the change of the payload container's image in the running pod.

One PATCH makes the kubelet end the container and start the next one with the new image. Two sources report the new
container: payload-init's connection, some 60 ms before the pod's status, and the status, which alone names the running
image. `bind` returns after the first, `confirm` after both; HTCondor's next docker calls come between them.
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
    ImageNotHere,
    NotNow,
    PayloadLost,
    PilotError,
)
from k8spilot.kube.backoff import BackOff, retry
from k8spilot.kube.own_pod import OwnPod, Sidecar
from k8spilot.kube.pod import IDLE_COST, bind_of, runtime
from k8spilot.kube.relist import Relist
from k8spilot.model.image import Image
from k8spilot.model.kubelet_messages import plain
from k8spilot.model.reference import Reference
from k8spilot.model.runtime_faults import runtime_fault
from k8spilot.payload.binding.image_change import ChangeObserver, ImageChange
from k8spilot.payload.binding.image_requests import ImageRequests
from k8spilot.payload_init.await_end import await_end
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.registry.skopeo import Registry

logger = logging.getLogger(__name__)

_CONFIRM_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 10.0
"""Seconds for the status after that, from the time when the API server is known to send it."""
_IDLE_SECONDS: Final = 60.0
"""Limit in seconds of the intermediate step to the idle image."""
_TRIES: Final = 3
_UNBIND_SECONDS: Final = (1.0, 30.0)
"""First and longest pause in seconds between attempts to return to the idle image."""


class Binder:
    """Changes the image of one payload container of the own pod."""

    def __init__(
        self,
        sidecar: Sidecar,
        pod: OwnPod,
        init_server: PayloadInitServer,
        registry: Registry,
        idle: Callable[[], str],
        groups: Callable[[], frozenset[int]],
        patience: float = 120.0,
    ) -> None:
        self.name = sidecar.name
        self._sidecar = sidecar
        self.pod = pod
        self._init_server = init_server
        self._idle = idle
        self._groups = groups
        """Groups that a job may have."""
        self._patience = patience
        """Seconds to wait for an unavailable API server, and for a registry that the kubelet cannot reach."""
        self._requests = ImageRequests()
        self._changes = ChangeObserver(
            name=sidecar.name, pod=pod, registry=registry, requests=self._requests, patience=patience
        )
        self._relist = Relist(pod, sidecar)
        self._unfinished: Reference | None = None
        self._wanted = ""
        """Reference of the last change that was requested, whether the pod shows it already or not."""

    @property
    def unfinished(self) -> Reference | None:
        """Image of a change that has started, but has no container yet.

        The kubelet may be pulling it, and handles no other change of the pod until the pull ends.
        """
        return self._unfinished

    @unfinished.setter
    def unfinished(self, image: Reference | None) -> None:
        self._unfinished = image
        if image is None:
            self.pod.work.end(self.name)
        else:
            self.pod.work.begin(self.name)

    @property
    def trouble(self) -> str:
        """Message about a Kubernetes API that fails or refuses; empty while it works."""
        return self.pod.connectivity.fault

    def keeps(self, change: ImageChange) -> bool:
        """Return whether the pod is to keep the container of a change, whose job could not write to its image."""
        view = self._changes.view(self.pod.pod)
        return change.wanted == view.wanted == self._wanted and view.is_read_only and self._unfinished is None

    async def bind(self, image: Image, attempt: str, seconds: float) -> ImageChange:
        """Change to `image`, and return as soon as payload-init runs in it.

        Args:
            image: image with a digest.
            attempt: unique word that makes the reference in the pod a fresh one.
            seconds: time limit.

        Raises:
            BindError: the kubelet cannot pull or run it, or not in time, or the image adds groups to its jobs.
            ImageNotHere: it would end the node's container runtime.
            ClusterRefused: the API server does not allow it.
            NotNow: it is not available at present, for a temporary reason.
        """
        if (fault := runtime_fault(image, runtime(self.pod.pod))) is not None:
            raise ImageNotHere(fault)
        try:
            async with asyncio.timeout(seconds):
                return await self._persist(image, attempt)
        except TimeoutError:
            raise self._late(image.reference, seconds) from None

    def _late(self, reference: Reference, seconds: float) -> PilotError:
        """Return the error of a bind that exceeded its time limit."""
        if self.trouble:
            return ClusterError(f"image {reference} could not be bound: {self.trouble}")
        if self.pod.work.has_others(self.name):
            return NotNow(
                f"the node has not changed to image {reference} within {seconds:.0f} s, because it pulled the image of "
                "another job in the same pod"
            )
        if self._requests.unacknowledged:
            return NotNow(
                f"the node has not begun to change to image {reference} within {seconds:.0f} s; it may be overloaded, "
                "or its kubelet unavailable"
            )
        return BindError(
            f"image {reference} does not run after {seconds:.0f} s; it may be too large for the node, or its registry "
            "too slow"
        )

    async def _persist(self, image: Image, attempt: str) -> ImageChange:
        """Bind, and repeat it if another client has requested another image in the meantime."""
        for number in range(1, _TRIES):
            try:
                return await self._bind(image, f"{attempt}-{number}")
            except Displaced as error:
                logger.warning("%s; requesting it again.", error)
        return await self._bind(image, attempt)

    async def _bind(self, image: Image, attempt: str) -> ImageChange:
        assert image.digest is not None
        wanted = image.reference.fresh(image.digest, attempt)
        # After a container that could not start, the same message in the status could refer to it or to the next.
        has_words = self._changes.view(self.pod.pod).refused is not None
        if has_words or self._requests.may_come_late(image.digest, self._init_server.current):
            await self._pass_by_idle()
        # A refused image stays here until a container has started: the kubelet pulls it again after its back-off.
        before, self.unfinished = self.unfinished, self.unfinished or image.reference
        try:
            change = await self._change(image, wanted)
        except ClusterRefused:  # the kubelet does not see this change
            self.unfinished = before
            raise
        await self._arrive(change, self._changes.refused(change), self._arrived(change))
        logger.info("Container %s runs %s %.3f s after the change.", self.name, wanted, _now() - change.requested)
        return change

    async def _pass_by_idle(self) -> None:
        """Change to the idle image, so that the status has no message, and no container of the last image follows.

        The node may have lost that image, and its registry may be unavailable: a message that names it is never taken
        for another image's. Messages about a start name no image. So wait after a failed start until the kubelet has
        tried again.
        """
        wanted = self._idle()
        idle = Reference.parse(wanted)
        try:
            change = await self._change(Image(idle, idle.digest), wanted)
        except ClusterRefused as error:  # the pilot's own image: the job is not at fault
            raise ClusterError(str(error)) from error
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._arrive(change, self._changes.unavailable(change), self._confirmed(change))
        except TimeoutError:
            if (words := self._changes.not_started(change)) is not None:
                raise NotNow(
                    f"the idle image {idle} cannot be started; the job is not at fault: {plain(words)}"
                ) from None
            logger.warning("The idle image %s does not run after %.0f s; continuing without it.", idle, _IDLE_SECONDS)
        except (Displaced, ClusterError):
            raise
        except BindError as error:
            logger.warning("%s; continuing without it.", error)

    async def confirm(self, change: ImageChange) -> tuple[Channel, str]:
        """Return connection and id of the container in which the pod's status shows the bound image running.

        Raises:
            PayloadLost: no such container; the job is not at fault.
        """
        try:
            async with side_by_side(self._confirmed(change), self._changes.displaced(change)) as both:
                confirmed, displaced = both
                await first_of(*both, seconds=_CONFIRM_SECONDS)
                while not confirmed.done() and not displaced.done() and self.pod.work.delays(self.name):
                    await first_of(*both, seconds=_CONFIRM_SECONDS)
                if not confirmed.done() and not displaced.done():
                    # The watch may be dead, or the API server unavailable.
                    await retry(self.pod.refresh, self._patience)
                    await first_of(*both, seconds=_AGAIN_SECONDS)
                if confirmed.done():
                    found: tuple[Channel, str] = confirmed.result()
                    return found
                if displaced.done():
                    raise PayloadLost(f"{displaced.result()}; the job goes back to the queue")
        except ClusterError as error:
            raise PayloadLost(f"{error}; the job goes back to the queue") from error
        raise PayloadLost(
            f"the pod's status does not show image {change.image.reference} running within "
            f"{_CONFIRM_SECONDS:.0f} s; the node may be overloaded, and the job goes back to the queue"
        )

    async def _confirmed(self, change: ImageChange) -> tuple[Channel, str]:
        identity = await self._changes.running(change)
        return await self._arrived(change), identity

    async def _arrived(self, change: ImageChange) -> Channel:
        channel = await self._init_server.until(
            lambda candidate: candidate.hello.result().fresh and candidate.hello.result().bind == change.name
        )
        self.unfinished = None
        # Unless the pod's supplementalGroupsPolicy is Strict, the image's own /etc/group adds groups.
        if others := sorted(channel.groups - self._groups()):
            raise BindError(
                f"image {change.image.reference} adds its jobs to other groups ({', '.join(map(str, others))}); "
                "remove the jobs' user (usually nobody) from these groups in its /etc/group"
            )
        return channel

    async def next_container(self, last: Channel | None) -> Channel:
        """Wait for the container after that of `last` in which nothing has run yet."""
        return await self._init_server.until(lambda candidate: candidate is not last and candidate.hello.result().fresh)

    def assume_unfinished(self) -> None:
        """Treat the pod's present change as unfinished: another engine started it."""
        with suppress(ImageError):  # not an image's name, so that nothing pulls it
            self.unfinished = Reference.parse(self._changes.view(self.pod.pod).wanted)

    async def unbind(self) -> None:
        """Request the idle image until the API server accepts it or the task is cancelled; do not wait for it."""
        await await_end((await self.request_idle_image()).last)

    async def await_idle_image(self, change: ImageChange) -> None:
        """Wait until the kubelet handles the change to the idle image, after a change that was `unfinished`.

        There is no time limit: the kubelet ends no pull by itself, whatever happens to the pod.

        Raises:
            NotNow: another client has requested another image, or the API server is unavailable: request it again.
        """
        try:
            await self._arrive(change, self._changes.unavailable(change), self._arrived(change))
        except NotNow:
            raise
        except BindError as error:  # the message shows that the other pull has ended
            logger.warning("%s; continuing without it.", error)
        self.unfinished = None

    async def request_idle_image(self) -> ImageChange:
        """Request the idle image until the API server accepts it, or until cancelled."""
        wanted = self._idle()
        idle = Reference.parse(wanted)

        async def request(name: str) -> dict[str, Any] | None:
            try:
                return await self.pod.set_image(self._sidecar, wanted, name, IDLE_COST)
            except ClusterRefused as error:
                # Even the pilot's own image is refused: the next job is not at fault, and must not come here.
                await self.pod.connectivity.note("patch", str(error))
                raise ClusterError(str(error)) from error

        return await self._changed(
            Image(idle, idle.digest),
            wanted,
            lambda name: retry(partial(request, name), math.inf, BackOff(*_UNBIND_SECONDS)),
        )

    async def _change(self, image: Image, wanted: str) -> ImageChange:
        return await self._changed(
            image, wanted, lambda name: retry(partial(self.pod.set_image, self._sidecar, wanted, name), self._patience)
        )

    async def _changed(
        self, image: Image, wanted: str, send: Callable[[str], Awaitable[dict[str, Any] | None]]
    ) -> ImageChange:
        """Request a change, and return it.

        `send` is called with the name of the change, and returns the result of set_image.
        """
        self._wanted = wanted
        now, last, name = self._changes.view(self.pod.pod), self._init_server.current, uuid.uuid4().hex
        self._requests.add(wanted, last)
        change = ImageChange(image=image, wanted=wanted, name=name, before=now, last=last, requested=_now())
        then = await send(name)
        # The watch's view may be stale after an outage. The answer has the status of the container before.
        if then is not None:
            return replace(change, before=replace(self._changes.view(then), wanted=now.wanted))
        # It was requested before: by an attempt whose answer was lost, or, for an idle image without a digest, by an
        # unbind.
        return replace(change, name=bind_of(self.pod.pod, self._sidecar.annotation))

    async def _arrive(
        self, change: ImageChange, refusal: Coroutine[Any, Any, BindError], arrival: Coroutine[Any, Any, object]
    ) -> None:
        """Wait for the `arrival` of the new container, or for the kubelet's refusal.

        Raises:
            BindError: the result of `refusal`, if it comes before the container.
            Displaced: another client has requested another image.
            ClusterError: the API server is unavailable, which the kubelet needs, too.
        """
        async with side_by_side(
            arrival,
            refusal,
            self._changes.displaced(change),
            self.pod.connectivity.lasting(self._patience),
            self._end_last(change),
            self._relist.begin(None if change.last is None else change.last.closed),
        ) as (arrived, refused, displaced, away, *_):
            await first_of(arrived, refused, displaced, away)
            if displaced.done():
                raise displaced.result()
            if not arrived.done():
                raise refused.result() if refused.done() else away.result()
            self._relist.container_started()
            arrived.result()  # raises if the container is not usable

    async def _end_last(self, change: ImageChange) -> None:
        """Wait for the end of the previous container, and end it if the kubelet does not."""
        if change.last is not None and await await_end(change.last):
            self._requests.acknowledge()


def _now() -> float:
    return asyncio.get_running_loop().time()
