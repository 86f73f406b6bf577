"""The image policy: images that the operator allows, and paths that the execution point needs itself."""

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
    """Requirements of a job's image. The idle image is the pilot's own, and exempt."""

    allowed: Sequence[str] = ()
    """Allowed registries, and prefixes of repositories up to a slash. If empty, all are allowed except for hosts
    that are not registries (model/blocked_hosts.py)."""
    needs_digest: bool = False
    """Whether the job must name the image by its digest, so that it gets the same image every time."""
    allows_volumes: bool = True
    """Whether the image may declare volumes. The runtime creates folders on the node's disk for them, which the
    kubelet does not count for the pod (docs/explanation/security.md has the experiment)."""
    reserved: Sequence[Path] = ()
    """Mount paths of the pilot's volumes in the payload container; an image may not declare volumes there."""
    api: Sequence[str] = ()
    """host:port of the API server, which is not a registry."""
    pod: Sequence[str] = ()
    """Addresses of the own pod, which is not a registry either."""

    def admit(self, reference: Reference) -> None:
        """Check whether a job may use `reference`, before the bind.

        Raises:
            ImageNotAllowed: the policy does not allow it.
        """
        if self.allowed and not any(_lies_in(reference.repository, prefix) for prefix in self.allowed):
            raise ImageNotAllowed(
                f"image {reference} is not allowed here: this site allows images of {', '.join(self.allowed)}"
            )
        registry = reference.repository.partition("/")[0]
        if not self.allowed and (kind := closed_host(registry, self.api, self.pod)):
            raise ImageNotAllowed(
                f"image {reference} is not allowed here: {registry} is {kind}, not a registry for jobs; use another "
                "registry, or ask the site to add this one to K8SPILOT_ALLOWED_IMAGES"
            )
        if self.needs_digest and not (reference.digest or "").startswith("sha256:"):
            raise ImageNotAllowed(
                f"image {reference} is not allowed here: this site's jobs must name images by their digest, "
                f"{reference.repository}@sha256:...; `skopeo inspect` and `docker pull` show it"
            )

    def admit_volumes(self, image: Image) -> None:
        """Check whether the image may have the volumes that it declares.

        Raises:
            ImageNotAllowed: the policy allows no volumes.
            ImageError: a volume is at a path of the pilot.
        """
        if image.volumes and not self.allows_volumes:
            raise ImageNotAllowed(
                f"image {image.reference} is not allowed here: it declares a volume at {image.volumes[0]}, and this "
                "site allows no images with volumes; build it without that VOLUME"
            )
        for volume in image.volumes:
            path = PurePosixPath(posixpath.normpath(f"/{volume.lstrip('/')}"))  # normpath keeps two leading slashes
            if any(path.is_relative_to(place) for place in self.reserved):
                raise ImageError(
                    f"image {image.reference} declares a volume at {volume}, which belongs to the execution point; "
                    "build it without that VOLUME"
                )


def _lies_in(repository: str, place: str) -> bool:
    return repository == place or repository.startswith(f"{place}/")
