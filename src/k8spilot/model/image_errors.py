"""Why an image cannot be had or started: for good, or for now.

containerd, the kubelet and skopeo tell it in words (tests/unit/test_model_image_errors.py has them as seen). A
job must not be held for a registry that is away for a moment, and a user must not wait for an image that never comes.
Names of images and addresses are in the words, too, and are the user's to choose: they are taken out first.
"""

import re
from typing import Final

_NAMES: Final = re.compile(r'"[^"]*"|https?://\S+|(?<!\S)\S+: not found$')
_LONGEST: Final = 8192
_FULL: Final = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_BROKEN: Final = re.compile(
    r"failed to extract layer|number of layers and diffIDs|mismatched image rootfs|invalid tar header|"
    r"no match for platform|no image found in (?:image index|manifest list)|invalid reference|couldn't parse image|"
    r"must be lowercase|more than 255 characters|unsupported digest algorithm|name invalid|unsupported manifest|"
    r"exceeded maximum allowed size",
    re.IGNORECASE,
)
"""What is wrong with the image or its name, whatever else the words have (a broken layer: "unexpected EOF")."""
_AWAY: Final = re.compile(
    r"\b(?:408|425|429|5\d\d) [A-Z][a-z]|unexpected HTTP status: 5\d\d|StatusCode: (?:408|429|5\d\d)|"
    r"toomanyrequests|too many requests|connection (?:refused|reset)|no route to host|network is unreachable|"
    r"i/o timeout|timeout awaiting|TLS handshake timeout|deadline ?exceeded|context (?:deadline|canceled)|\bEOF\b|"
    r"short read|broken pipe|server misbehaving|temporary failure|request timeout|unavailable|QPS exceeded|"
    r"failed to reserve container name|cannot start a (?:stopped process|container that has stopped)|"
    r"cannot start an already running container|cannot allocate memory|too many open files|input/output error",
    re.IGNORECASE,
)
"""The registry, the network or the node."""
_REFUSED: Final = re.compile(
    r"not found|manifest unknown|name unknown|repository name not known|no such host|40[13] |unauthorized|forbidden|"
    r"denied|authentication required|insufficient_scope|does not exist",
    re.IGNORECASE,
)
"""The registry's word that there is no such image, or not for us (codes of the OCI distribution specification)."""
_OF_THE_IMAGE: Final = re.compile(
    r"^(?:InvalidImageName|ErrImageNeverPull|SignatureValidationFailed|RunContainerError|CreateContainer\w*Error)\b"
)
"""Reasons of the kubelet that lie in the image or the pod, unless their message is known to be about something else."""


def may_pass(words: str) -> bool:
    """Whether it may be over soon. Words that nobody has seen yet count so: a good job is not held for a hiccup."""
    bare = " ".join(_NAMES.sub(_kept, line) for line in words[:_LONGEST].splitlines())
    if _FULL.search(bare):
        return True
    if _BROKEN.search(bare):
        return False
    if _AWAY.search(bare):
        return True
    return not (_REFUSED.search(bare) or _OF_THE_IMAGE.search(bare))


def _kept(match: re.Match[str]) -> str:
    return "not found" if match[0].endswith("not found") else ""
