"""Lookup of a job's image in its registry. The pod is not changed for an image that the registry did not describe."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from k8spilot.common.errors import RegistryUnreachable, Scope
from k8spilot.common.lru import LruDict
from k8spilot.kube.backoff import retry
from k8spilot.model.image import Image
from k8spilot.model.image_errors import scope_of
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.image_change import not_now
from k8spilot.registry.skopeo import Registry

logger = logging.getLogger(__name__)

_LAST_SECONDS: Final = 30.0
"""Seconds for an answer that was requested before the patience ended."""
_MOST_REFERENCES: Final = 1000
"""Maximum number of remembered references."""


class ImageLookup:
    """Looks up images, and remembers those that the pod has used."""

    def __init__(self, registry: Registry, policy: ImagePolicy, patience: float) -> None:
        self._registry = registry
        self._policy = policy
        self._patience = patience
        """Seconds in which an unavailable registry is queried again."""
        self._digests: LruDict[str, str] = LruDict(_MOST_REFERENCES)
        """Requested reference -> its last known digest."""

    def admit(self, reference: Reference) -> None:
        """Check whether the policy allows the image.

        Raises:
            ImageNotAllowed: the operator's policy does not allow it.
        """
        self._policy.admit(reference)

    def has_used(self, reference: Reference) -> bool:
        """Return whether this pod has used the image, so that it is probably on the node."""
        return reference.source in self._digests

    def keep(self, image: Image) -> None:
        """Remember that the pod has used the image, which has a digest."""
        self._digests[image.reference.source] = image.digest or ""

    async def find(self, reference: Reference) -> Image:
        """Return the image with its digest and configuration; repeat requests to an unavailable registry.

        No job runs without them: without the image's entrypoint the job would do something else, and the image's
        volumes would be unchecked. A registry may belong to the job's owner, and serve its images to the node alone.

        Raises:
            ImageError: the image does not exist, access is denied, or it must not run here.
            ImageNotNow: the registry was unavailable for too long.
        """
        has_answered = False
        try:
            async with asyncio.timeout(self._patience + _LAST_SECONDS):
                digest, has_answered = await self._digest(reference)
                image = await self._query(lambda: self._registry.image(reference, digest))
        except TimeoutError:
            words, scope = "its registry did not answer all requests", _scope("", reference, has_answered=has_answered)
            raise not_now(reference, self._patience, words, scope) from None
        except RegistryUnreachable as error:
            scope = _scope(str(error), reference, has_answered=has_answered)
            raise not_now(reference, self._patience, str(error), scope) from error
        self._policy.admit_volumes(image)
        return image

    async def _digest(self, reference: Reference) -> tuple[str, bool]:
        """Return the digest to bind, and whether the registry has answered."""
        if (known := self._digests.get(reference.source)) is None:
            return await self._query(lambda: self._registry.digest(reference)), True
        try:
            return await self._registry.digest(reference), True
        except RegistryUnreachable as error:
            logger.warning("%s; binding its last known digest, %s.", error, known)
            return known, False

    async def _query[T](self, question: Callable[[], Awaitable[T]]) -> T:
        return await retry(question, self._patience, retry_on=RegistryUnreachable)


def _scope(words: str, reference: Reference, *, has_answered: bool) -> Scope:
    """Return the part of an image's name that a failed look-up is about.

    A registry that has answered for the image's manifest works. The manifest names the next document, and may name
    another host for it.
    """
    return scope_of(words, reference) if has_answered else "registry"
