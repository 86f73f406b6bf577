"""Late binding: the payload container's image is changed in the running pod.

One PATCH makes the kubelet end the container and start the next with the new image. Two sources tell that
it has: payload-init's connection, some 60 ms before the pod's status, and the status, which alone says which
image runs. `bind` returns with the first, `confirm` with both; between the two lie HTCondor's next docker calls.
"""

import asyncio
import contextlib
import logging
import posixpath
import uuid
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from k8spilot.errors import BindError, ClusterError, ClusterRefused, ImageError, ImageNotNow, RegistryUnreachable
from k8spilot.kube.pod import ContainerView, container
from k8spilot.kube.watch import OwnPod
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.model.refusals import may_pass
from k8spilot.payload_init.channel import Channel, Listener
from k8spilot.registry import Registry

logger = logging.getLogger(__name__)

_THAW_SECONDS: Final = 2.0
"""payload-init ends at once on the kubelet's SIGTERM. One that does not has been stopped by its job."""
_HAD: Final = 1000
"""References that are remembered."""
_CONFIRM_SECONDS: Final = 60.0
_TRIES: Final = 3
_TRY_AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Binding:
    """A payload container that was changed to another image, with what it was before."""

    image: Image
    wanted: str
    """The fresh reference that the pod's spec has now."""
    before: ContainerView
    last: Channel | None
    """The connection of the container before it."""
    asked: float
    """When the change was asked for (the event loop's clock, seconds)."""


class Binder:
    """Changes the image of one payload container of the own pod."""

    def __init__(
        self,
        name: str,
        pod: OwnPod,
        listener: Listener,
        registry: Registry,
        idle: Callable[[], str],
        reserved: Sequence[Path] = (),
        patience: float = 120.0,
    ) -> None:
        self._name = name
        self._pod = pod
        self._listener = listener
        self._registry = registry
        self._idle = idle
        self._reserved = reserved
        """Where the pilot's own volumes are in the payload container; an image may not put others there."""
        self._patience = patience
        """How long the kubelet may go on trying to get an image that it could not get the first time, seconds."""
        self._had: dict[str, str | None] = {}
        """What this pod has had: reference as asked for -> digest that it meant the last time."""

    def has_had(self, reference: Reference) -> bool:
        """Whether this pod has had the image, so that it is most likely on the node."""
        return reference.source in self._had

    async def bind(self, reference: Reference) -> Binding:
        """Change to the image `reference`; return when payload-init runs in it. The caller sets the time limit.

        Raises:
            BindError: the image is not to be had, or the kubelet cannot run it.
            ImageNotNow: it could not be had for a while, for a reason that may pass.
            ClusterError: the API server did not take the change.
        """
        digest = await self._digest(reference)
        wanted = str(reference) if digest is None else reference.fresh(digest, uuid.uuid4().hex[:12])
        now = self._view(self._pod.pod)
        if wanted == now.wanted or now.refused is not None:
            # Without a digest no reference is fresh, and one that does not change starts no container. And after a
            # container that could not start, the same words in the status could be meant for it or for the next.
            await self._arrive(await self._change(Image(reference, None), self._idle()))
            await self._pod.until(lambda pod: True if self._view(pod).refused is None else None)
        async with asyncio.TaskGroup() as both:
            image = both.create_task(self._image(reference, digest), name="image configuration")
            binding = both.create_task(self._change(Image(reference, digest), wanted), name="change of image")
        changed, found = binding.result(), image.result()
        if await self._arrive(changed) and digest is None:
            found = await self._image_by_now(reference)
        logger.info("Container %s runs %s %.3f s after the change.", self._name, wanted, _now() - changed.asked)
        self._had[reference.source] = digest or self._had.pop(reference.source, None)
        if len(self._had) > _HAD:
            del self._had[next(iter(self._had))]
        return replace(changed, image=found)

    async def _image_by_now(self, reference: Reference) -> Image:
        """The configuration of an image that was bound by its tag, from a registry that was away and came back."""
        try:
            image = await self._image(reference, await self._registry.digest(reference))
        except (RegistryUnreachable, ImageNotNow):
            return Image(reference, None)
        return replace(image, digest=None)  # the tag may have been moved since the kubelet pulled it

    async def confirm(self, binding: Binding) -> tuple[Channel, str]:
        """The connection and the id of the container that the pod's status shows to run the bound image.

        Raises:
            BindError: it does not come to run.
        """
        try:
            async with asyncio.timeout(_CONFIRM_SECONDS):
                identity = await self._running(binding)
                channel = await self._listener.until(lambda one: one is not binding.last and one.fresh)
                return channel, identity
        except TimeoutError:
            raise BindError(
                f"the pod's status does not show image {binding.image.reference} running within "
                f"{_CONFIRM_SECONDS:.0f} s; the node may be overloaded"
            ) from None

    async def rest(self) -> None:
        """Change to the idle image, without waiting for it."""
        await self._pod.set_image(self._name, self._idle())

    async def _digest(self, reference: Reference) -> str | None:
        try:
            return await self._registry.digest(reference)
        except RegistryUnreachable as error:
            if (known := self._had.get(reference.source)) is not None:
                logger.warning("%s; binding what it meant the last time, %s.", error, known)
                return known
            logger.warning(
                "%s; binding by tag: this can take the kubelet's back-off of 10 s and more when the tag was used "
                "before, and the image's own entrypoint is not known.",
                error,
            )
            return None

    async def _image(self, reference: Reference, digest: str | None) -> Image:
        if digest is None:
            return Image(reference, None)
        try:
            image = await self._registry.image(reference, digest)
        except RegistryUnreachable as error:
            raise ImageNotNow(str(error)) from error
        for volume in image.volumes:
            path = PurePosixPath(posixpath.normpath(volume))
            if any(path.is_relative_to(place) for place in self._reserved):
                raise ImageError(
                    f"image {reference} declares a volume at {volume}, which belongs to the execution point; "
                    "build it without that VOLUME"
                )
        return image

    async def _change(self, image: Image, wanted: str) -> Binding:
        binding = Binding(image, wanted, self._view(self._pod.pod), self._listener.current, _now())
        for attempt in range(1, _TRIES + 1):
            try:
                await self._pod.set_image(self._name, wanted)
                break
            except ClusterRefused:
                raise
            except ClusterError as error:
                if attempt == _TRIES:
                    raise
                logger.warning("%s; trying again in %.0f s.", error, _TRY_AGAIN_SECONDS)
                await asyncio.sleep(_TRY_AGAIN_SECONDS)
        return binding

    async def _arrive(self, binding: Binding) -> bool:
        """Wait for payload-init of the new container, or for the kubelet's word that it cannot start.

        Return whether the kubelet had such words for a while.
        """
        troubled = asyncio.Event()
        arrived = asyncio.ensure_future(
            self._listener.until(lambda channel: channel is not binding.last and channel.fresh)
        )
        refused = asyncio.ensure_future(self._refused(binding, troubled))
        thaw = asyncio.ensure_future(_thaw(binding.last))
        try:
            await asyncio.wait([arrived, refused], return_when=asyncio.FIRST_COMPLETED)
            if not arrived.done():
                raise refused.result()
        finally:
            for task in (arrived, refused, thaw):
                task.cancel()
        return troubled.is_set()

    async def _refused(self, binding: Binding, troubled: asyncio.Event) -> BindError:
        """Wait for the kubelet's word that the container cannot start, for good or for too long."""
        image, words = binding.image.reference, "nothing is known of it"

        def definite(pod: dict[str, Any]) -> str | None:
            nonlocal words
            if (refusal := self._refusal(pod, binding)) is not None:
                words = refusal
                troubled.set()
            return None if may_pass(words) else words

        # Where the registry cannot even be asked, a pull may hang, or wait for a back-off: the clock runs at once.
        if binding.image.digest is not None:
            words = await self._pod.until(lambda pod: self._refusal(pod, binding))
            if may_pass(words):
                logger.warning("Image %s cannot be had; the kubelet tries for %.0f s: %s", image, self._patience, words)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._pod.until(definite)
                return BindError(f"image {image} cannot be run here: {words}")
        return ImageNotNow(
            f"image {image} could not be had within {self._patience:.0f} s, for which the job is not to blame: {words}"
        )

    async def _running(self, binding: Binding) -> str:
        """Wait until the status shows the bound image running; the container's id."""
        tried: set[str] = set()
        while True:
            view = await self._pod.until(lambda pod: self._successor(pod, binding, tried))
            if _is_named(view, binding.image) or await self._is_same(view, binding.image):
                return view.container_id
            tried.add(view.image_id)

    def _successor(self, pod: dict[str, Any], binding: Binding, tried: Container[str]) -> ContainerView | None:
        """The running container of the change, unless the name that it has was `tried`."""
        view = self._view(pod)
        follows = view.wanted == binding.wanted and view.container_id not in ("", binding.before.container_id)
        is_known = _is_named(view, binding.image) or view.image_id not in tried
        return view if view.running and follows and is_known else None

    async def _is_same(self, view: ContainerView, image: Image) -> bool:
        """Whether the name by which the node knows the image means the same one; the registry is asked."""
        try:
            reference = Reference.parse(view.image_id)
            return (await self._registry.image(reference, reference.digest or "")).identifier == image.identifier
        except (ImageError, RegistryUnreachable):
            return False

    def _refusal(self, pod: dict[str, Any], binding: Binding) -> str | None:
        view = self._view(pod)
        if view.wanted != binding.wanted or view.refused == binding.before.refused:
            return None
        return view.refused

    def _view(self, pod: dict[str, Any]) -> ContainerView:
        view = container(pod, self._name)
        if view is None:
            raise ClusterError(f"the pod has no container {self._name}; its manifest is not k8spilot's")
        return view


def _is_named(view: ContainerView, image: Image) -> bool:
    """Whether the status names the image: by the bound digest, by its platform's, or by its id."""
    names = (image.digest or "", image.identifier, *image.manifests)
    return image.digest is None or view.image_id.endswith(names) or view.image.endswith(names)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _thaw(channel: Channel | None) -> None:
    """End a payload-init that its job has stopped: the kubelet would wait for the pod's whole grace period."""
    if channel is None or channel.gone.done():
        return
    await asyncio.wait([channel.gone], timeout=_THAW_SECONDS)
    if not channel.gone.done():
        logger.warning("%r does not end as it is told to; it is killed.", channel)
        channel.kill()
