"""What the registry says of an image."""

from dataclasses import dataclass
from typing import Final

from k8spilot.model.reference import Reference

UNKNOWN: Final = "sha256:" + "0" * 64
"""The id of an image whose configuration has not been read."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it can be bound.

    Fields follow the OCI image configuration (image-spec, config.md).
    """

    reference: Reference
    digest: str | None
    """What is bound: of the manifest or index that the reference names now; None where nobody has looked."""
    manifest: str | None = None
    """Digest of the manifest for this machine's platform, where `digest` is an index's."""
    identifier: str = UNKNOWN
    """Docker's image id: the digest of the configuration. Images with the same one are the same."""
    architecture: str = ""
    os: str = "linux"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    directory: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()
    """Paths that the image declares as volumes: the runtime puts its own folders there."""
    created: str = "0001-01-01T00:00:00Z"
    size: int = 0
    """Bytes of the compressed layers."""
