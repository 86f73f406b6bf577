"""What a job's image is, as its registry tells. Nothing is changed for an image of which that is not known."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from k8spilot.common.errors import RegistryUnreachable
from k8spilot.common.lru import LruDict
from k8spilot.kube.backoff import retry
from k8spilot.model.image import Image
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.payload.image_change import not_now
from k8spilot.registry.skopeo import Registry

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LAST_SECONDS: Final = 30.0
"""How long an answer may take that has been asked for before patience ends."""
_HAD: Final = 1000
"""References that are remembered."""


class ImageLookup:
    """Finds images, and knows which ones the pod has had."""

    def __init__(self, registry: Registry, policy: ImagePolicy, patience: float) -> None:
        self._registry = registry
        self._policy = policy
        self._patience = patience
        """How long a registry that is away is asked again; seconds."""
        self._had: LruDict[str, str] = LruDict(_HAD)
        """Reference as asked for -> digest that it meant the last time."""

    def admit(self, reference: Reference) -> None:
        """See whether a job may have the image at all.

        Raises:
            ImageNotAllowed: the operator's policy is against it.
        """
        self._policy.admit(reference)

    def has_had(self, reference: Reference) -> bool:
        """Whether this pod has had the image, so that it is most likely on the node."""
        return reference.source in self._had

    def keep(self, image: Image) -> None:
        """Remember that the pod has had the image, which has a digest."""
        self._had[image.reference.source] = image.digest or ""

    async def find(self, reference: Reference) -> Image:
        """The image with its digest and configuration; its registry is asked again and again while it is away.

        No job runs without: it would do something else without the image's entrypoint, and nobody would have looked
        at its volumes. A registry may be the job's own, and tell its images to the node alone.

        Raises:
            ImageError: there is no such image, not for us, or none that may run here.
            ImageNotNow: the registry did not answer for too long.
        """
        try:
            async with asyncio.timeout(self._patience + _LAST_SECONDS):
                return await self._find(reference)
        except TimeoutError:
            raise not_now(reference, self._patience, "its registry did not answer all that it was asked") from None

    async def _find(self, reference: Reference) -> Image:
        digest = await self._digest(reference)
        image = await self._ask(reference, lambda: self._registry.image(reference, digest))
        self._policy.admit_volumes(image)
        return image

    async def _digest(self, reference: Reference) -> str:
        if (known := self._had.get(reference.source)) is None:
            return await self._ask(reference, lambda: self._registry.digest(reference))
        try:
            return await self._registry.digest(reference)
        except RegistryUnreachable as error:
            logger.warning("%s; binding what it meant the last time, %s.", error, known)
            return known

    async def _ask(self, reference: Reference, question: Callable[[], Awaitable[T]]) -> T:
        try:
            return await retry(question, self._patience, retry_on=RegistryUnreachable)
        except RegistryUnreachable as error:
            raise not_now(reference, self._patience, str(error)) from error
