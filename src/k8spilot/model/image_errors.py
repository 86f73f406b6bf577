"""Classification of image errors: permanent or temporary.

containerd, the kubelet and skopeo report errors as text (tests/unit/test_model_image_errors.py has examples). A job
must not be held because a registry is briefly unavailable, and a user must not wait for an image that never comes.
Names of images and addresses are removed first, because users choose them.
"""

import re
from typing import Final

_NAMES: Final = re.compile(r'"[^"]*"|https?://\S+|(?<!\S)\S+: not found$')
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
_REFUSED: Final = re.compile(
    r"not found|manifest unknown|name unknown|repository name not known|no such host|40[13] |unauthorized|forbidden|"
    r"denied|authentication required|insufficient_scope|does not exist",
    re.IGNORECASE,
)
"""Final refusals of the registry (codes of the OCI distribution specification)."""
_OF_THE_IMAGE: Final = re.compile(
    r"^(?:InvalidImageName|ErrImageNeverPull|SignatureValidationFailed|RunContainerError|CreateContainer\w*Error)\b"
)
"""Reasons of the kubelet that concern the image or the pod, unless their message shows another cause."""


def may_pass(words: str) -> bool:
    """Return whether an error is temporary. An unknown error counts as temporary, so that a valid job is not held."""
    bare = " ".join(_NAMES.sub(_replacement, line) for line in words[:_MOST_CHARACTERS].splitlines())
    if _FULL.search(bare):
        return True
    if _BROKEN.search(bare):
        return False
    if _UNAVAILABLE.search(bare):
        return True
    return not (_REFUSED.search(bare) or _OF_THE_IMAGE.search(bare))


def _replacement(match: re.Match[str]) -> str:
    return "not found" if match[0].endswith("not found") else ""
