"""Which images jobs may have here: what the operator allows, and what the execution point needs for itself."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from k8spilot.common.errors import ImageError, ImageNotAllowed
from k8spilot.model.blocked_hosts import closed_host
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """What is asked of a job's image; the idle image is the pilot's own, and not asked."""

    allowed: Sequence[str] = ()
    """Registries, and beginnings of repositories' names up to a slash; with none, all are allowed but those on hosts
    that are no registries of anybody's (model/blocked_hosts.py)."""
    needs_digest: bool = False
    """Whether the job has to name the image by its digest, so that it is the same image every time."""
    allows_volumes: bool = True
    """Whether the image may declare volumes. The runtime puts folders of the node's disk there, which the kubelet does
    not count for the pod (docs/explanation/security.md has how that was tried)."""
    reserved: Sequence[Path] = ()
    """Where the pilot's own volumes are in the payload container; an image may not put others there."""
    api: Sequence[str] = ()
    """host:port of the API server, which is no registry."""
    pod: Sequence[str] = ()
    """Addresses of the own pod, which is none, either."""

    def admit(self, reference: Reference) -> None:
        """See whether a job may ask for `reference`, before anything is done for it.

        Raises:
            ImageNotAllowed: it may not.
        """
        if self.allowed and not any(_lies_in(reference.repository, one) for one in self.allowed):
            raise ImageNotAllowed(
                f"image {reference} is not allowed here: this site's jobs may use images of {', '.join(self.allowed)}"
            )
        registry = reference.repository.partition("/")[0]
        if not self.allowed and (what := closed_host(registry, self.api, self.pod)):
            raise ImageNotAllowed(
                f"image {reference} is not allowed here: {registry} is {what}, and no registry for jobs; name another, "
                "or ask the site to name this one in K8SPILOT_ALLOWED_IMAGES"
            )
        if self.needs_digest and not (reference.digest or "").startswith("sha256:"):
            raise ImageNotAllowed(
                f"image {reference} is not allowed here: this site's jobs must name images by their digest, "
                f"{reference.repository}@sha256:...; `skopeo inspect` and `docker pull` tell it"
            )

    def admit_volumes(self, image: Image) -> None:
        """See whether the image may have the volumes that it declares.

        Raises:
            ImageNotAllowed: no image here may have one.
            ImageError: one of them is where the pilot's are.
        """
        if image.volumes and not self.allows_volumes:
            raise ImageNotAllowed(
                f"image {image.reference} is not allowed here: it declares a volume at {image.volumes[0]}, and this "
                "site's jobs may have no images with volumes; build it without that VOLUME"
            )
        for volume in image.volumes:
            path = PurePosixPath(posixpath.normpath(f"/{volume.lstrip('/')}"))  # two slashes would stay two
            if any(path.is_relative_to(place) for place in self.reserved):
                raise ImageError(
                    f"image {image.reference} declares a volume at {volume}, which belongs to the execution point; "
                    "build it without that VOLUME"
                )


def _lies_in(repository: str, place: str) -> bool:
    return repository == place or repository.startswith(f"{place}/")
