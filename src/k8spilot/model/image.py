"""An image, as the registry describes it."""

from dataclasses import dataclass
from typing import Final

from k8spilot.model.reference import Reference

UNKNOWN: Final = "sha256:" + "0" * 64
"""Id of an image whose configuration is unknown."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can be bound."""

    reference: Reference
    digest: str | None
    """Digest to bind: the manifest or index that the reference names now; None if unknown."""
    manifest: str | None = None
    """Digest of the manifest for this machine's platform, if `digest` belongs to an index."""
    identifier: str = UNKNOWN
    """Docker's image id: the digest of the configuration. Images with the same id are equal."""
    architecture: str = ""
    os: str = "linux"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    directory: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()
    """Paths that the image declares as volumes. The runtime mounts its own folders there."""
    created: str = "0001-01-01T00:00:00Z"
    size: int = 0
    """Size of the compressed layers, in bytes."""
