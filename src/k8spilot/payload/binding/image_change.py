"""A change of the payload container's image as the pod shows it: the kubelet's messages, and the present image."""

import asyncio
import contextlib
import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from k8spilot.common.errors import (
    BindError,
    ClusterError,
    Displaced,
    ImageNotHere,
    ImageNotNow,
    RegistryUnreachable,
    Scope,
)
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import START_REASONS, ContainerView, container
from k8spilot.model.image import UNKNOWN, Image
from k8spilot.model.image_errors import Cause, cause_of, scope_of
from k8spilot.model.kubelet_messages import plain
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.image_requests import ImageRequests, mark
from k8spilot.payload_init.channel import Channel
from k8spilot.registry.skopeo import Registry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChange:
    """A change of a payload container to another image, with its previous state."""

    image: Image
    wanted: str
    """Fresh reference in the pod's spec."""
    name: str
    """Name of the change, which its container gets. A container of an image that another client set by hand keeps it,
    too."""
    before: ContainerView
    last: Channel | None
    """Connection of the previous container."""
    requested: float
    """Time of the request (the event loop's clock, seconds)."""

    def __repr__(self) -> str:
        return f"<ImageChange {self.name} to {self.wanted}>"


class ChangeObserver:
    """Observer of the changes of one container's image, in the own pod."""

    def __init__(self, *, name: str, pod: OwnPod, registry: Registry, requests: ImageRequests, patience: float) -> None:
        self._name = name
        self._pod = pod
        self._requests = requests
        self._registry = registry
        self._patience = patience
        """Seconds that the kubelet may try to pull an image whose registry is unavailable."""

    async def displaced(self, change: ImageChange) -> Displaced:
        """Wait until the pod's spec has another client's image, or no longer has the image of this bind."""
        seen = False

        def other(pod: dict[str, Any]) -> str | None:
            nonlocal seen
            wanted = self.view(pod).wanted
            seen = seen or wanted == change.wanted
            # The view may be older than the change, and may miss intermediate states.
            is_ours = wanted in (change.wanted, change.before.wanted) or self._requests.is_recent(wanted)
            return wanted if wanted != change.wanted and (seen or not is_ours) else None

        now = await self._pod.until(other)
        return Displaced(
            f"another client changed the image of container {self._name} from {change.wanted} to {now} in the meantime"
        )

    async def refused(self, change: ImageChange) -> BindError:
        """Wait for the kubelet's message that the container cannot start, permanently or for too long."""
        image = change.image.reference
        words = await self._pod.until(lambda pod: self._refusal(pod, change))

        def definite(pod: dict[str, Any]) -> str | None:
            nonlocal words
            words = self._refusal(pod, change) or words
            return None if cause_of(words) is Cause.PASSING else words

        if cause_of(words) is Cause.PASSING:
            logger.warning("Image %s is not available; the kubelet tries for %.0f s: %s", image, self._patience, words)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._pod.until(definite)
                logger.info("The kubelet's message about image %s: %s", image, words)
                if cause_of(words) is Cause.SITE:
                    return ImageNotHere(f"the node has no access to image {image}: {words}", scope_of(words, image))
                return BindError(f"image {image} cannot be run here: {plain(words)}")
        return not_now(image, self._patience, plain(words), scope_of(words, image))

    async def unavailable(self, change: ImageChange) -> BindError:
        """Wait for any refusal of the change that names its image. Messages about a failed start name none."""

        def message(pod: dict[str, Any]) -> str | None:
            words = self._refusal(pod, change)
            return words if words is not None and mark(change.wanted) in words else None

        words = await self._pod.until(message)
        return BindError(f"image {change.image.reference} is not available now: {plain(words)}")

    async def running(self, change: ImageChange) -> str:
        """Wait until the status shows the bound image running, and return the container's id."""
        tried: set[str] = set()
        while True:
            view = await self._pod.until(lambda pod: self._successor(pod, change, tried))
            if _is_named(view, change.image) or await self._is_same(view, change.image):
                return view.container_id
            tried.add(view.image_id)

    def _successor(self, pod: dict[str, Any], change: ImageChange, tried: Container[str]) -> ContainerView | None:
        """Return the running container of the change, unless the name of its image was `tried`."""
        view = self.view(pod)
        follows = view.wanted == change.wanted and view.container_id not in ("", change.before.container_id)
        is_known = _is_named(view, change.image) or view.image_id not in tried
        return view if view.running and follows and is_known else None

    async def _is_same(self, view: ContainerView, image: Image) -> bool:
        """Return whether the node's name of the image means the same image, according to the registry."""
        if image.identifier == UNKNOWN:
            return False
        try:
            reference = Reference.parse(view.image_id)
            return (await self._registry.image(reference, reference.digest or "")).identifier == image.identifier
        except (BindError, RegistryUnreachable):
            return False

    def not_started(self, change: ImageChange) -> str | None:
        """Return the kubelet's message about a failed start of its container, if it has one now."""
        pod = self._pod.pod
        return self._refusal(pod, change) if self.view(pod).waiting_reason in START_REASONS else None

    def _refusal(self, pod: dict[str, Any], change: ImageChange) -> str | None:
        view = self.view(pod)
        if view.wanted != change.wanted or view.refused in (None, change.before.refused):
            return None
        if self._requests.is_of_another(view.refused, change.wanted):
            return None
        self._requests.acknowledge()
        return view.refused

    def view(self, pod: dict[str, Any]) -> ContainerView:
        """Return the container in the pod's JSON.

        Raises:
            ClusterError: the pod has no such container.
        """
        view = container(pod, self._name)
        if view is None:
            raise ClusterError(f"the pod has no container {self._name}; its manifest is not k8spilot's")
        return view


def not_now(image: Reference, seconds: float, words: str, scope: Scope) -> ImageNotNow:
    """Return the error about an image that was not available for `seconds`, with the message about it.

    `scope` is the part of its name that the message is about.
    """
    return ImageNotNow(
        f"image {image} was not available within {seconds:.0f} s; the job is not at fault: {words}", scope
    )


def _is_named(view: ContainerView, image: Image) -> bool:
    """Return whether the status names the image: by the bound digest, by its platform's, or by its id."""
    names = tuple(name for name in (image.digest, image.identifier, image.manifest) if name)
    return image.digest is None or view.image_id.endswith(names) or view.image.endswith(names)
