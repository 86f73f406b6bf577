"""Classification of image errors: temporary, of this site, or of the image.

containerd, the kubelet and skopeo report errors as text (tests/unit/test_model_image_errors.py has examples). A job
must not be held because a registry is briefly unavailable or because this site has no access to it, and a user must not
wait for an image that never comes. Names of images and addresses are removed first, because users choose them.
"""

import re
from enum import Enum, auto
from typing import Final

from k8spilot.common.errors import Scope

_NAMES: Final = re.compile(r'"[^"]*"|https?://\S+|\breading manifest \S+ in \S+|\blookup \S+|(?<!\S)\S+: not found$')
_MOST_CHARACTERS: Final = 8192
_FULL: Final = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_BROKEN: Final = re.compile(
    r"failed to extract layer|number of layers and diffIDs|mismatched image rootfs|invalid tar header|"
    r"no match for platform|no image found in (?:image index|manifest list)|invalid reference|couldn't parse image|"
    r"must be lowercase|more than 255 characters|unsupported digest algorithm|name invalid|unsupported manifest|"
    r"exceeded maximum allowed size",
    re.IGNORECASE,
)
"""Errors of the image or its name. They outweigh the rest of the text (a broken layer: "unexpected EOF")."""
_UNAVAILABLE: Final = re.compile(
    r"\b(?:408|425|429|5\d\d) [A-Z][a-z]|unexpected HTTP status: 5\d\d|StatusCode: (?:408|429|5\d\d)|"
    r"toomanyrequests|too many requests|connection (?:refused|reset)|no route to host|network is unreachable|"
    r"i/o timeout|timeout awaiting|TLS handshake timeout|deadline ?exceeded|context (?:deadline|canceled)|\bEOF\b|"
    r"short read|broken pipe|server misbehaving|temporary failure|request timeout|unavailable|QPS exceeded|"
    r"failed to reserve container name|cannot start a (?:stopped process|container that has stopped)|"
    r"cannot start an already running container|cannot allocate memory|too many open files|input/output error",
    re.IGNORECASE,
)
"""Errors of the registry, the network or the node."""
_OF_THE_IMAGE: Final = re.compile(r"^(?:InvalidImageName|RunContainerError|CreateContainer\w*Error)\b")
"""Reasons of the kubelet that concern the image or the pod, unless their message shows another cause."""
_NO_REGISTRY: Final = re.compile(
    r"no such host|signed by unknown authority|server gave HTTP response to HTTPS client", re.IGNORECASE
)
"""Errors of the site's way to the registry: DNS, certificate authorities, TLS."""
_NO_ACCESS: Final = re.compile(
    r"40[13] |unauthorized|forbidden|denied|authentication required|insufficient_scope|^ErrImageNeverPull|"
    r"^SignatureValidationFailed",
    re.IGNORECASE,
)
"""Refusals of this site's account, and the node's own policies. Some registries also refuse so what they lack."""
_UNKNOWN: Final = re.compile(
    r"not found|manifest unknown|name unknown|repository name not known|does not exist", re.IGNORECASE
)
"""Refusals of the registry because it has no such image (codes of the OCI distribution specification)."""


class Cause(Enum):
    """Cause of an error."""

    PASSING = auto()
    """The registry, the network or the node, for the time being."""
    SITE = auto()
    """The site: another one may run the image."""
    IMAGE = auto()
    """The image or its name: no site can run it."""


def cause_of(words: str) -> Cause:
    """Return the cause of an error. An unknown error counts as temporary, so that a valid job is not held."""
    bare = _bare(words)
    if _FULL.search(bare):
        return Cause.PASSING
    if _BROKEN.search(bare):
        return Cause.IMAGE
    if _UNAVAILABLE.search(bare):
        return Cause.PASSING
    if _OF_THE_IMAGE.search(bare):
        return Cause.IMAGE
    if _NO_REGISTRY.search(bare) or _NO_ACCESS.search(bare):
        return Cause.SITE
    return Cause.IMAGE if _UNKNOWN.search(bare) else Cause.PASSING


def scope_of(words: str) -> Scope:
    """Return the part of an image's name that an error of the site is about.

    A registry decides by repository who may pull. A user who names a private repository must not close a slot for all
    images of that registry.
    """
    return "registry" if _NO_REGISTRY.search(_bare(words)) else "repository"


def _bare(words: str) -> str:
    return " ".join(_NAMES.sub(_replacement, line) for line in words[:_MOST_CHARACTERS].splitlines())


def _replacement(match: re.Match[str]) -> str:
    return "not found" if match[0].endswith("not found") else ""
