"""Classification of image errors: temporary, of this site, or of the image.

containerd, CRI-O, the kubelet and skopeo report errors as text (tests/unit/test_model_image_errors.py has examples).
A job must not be held because a registry is briefly unavailable or because this site has no access to it, and a user
must not wait for an image that never comes. Names of images and addresses are removed first: users choose them.
"""

import re
from enum import Enum, auto
from typing import Final

from k8spilot.common.errors import Scope
from k8spilot.model.kubelet_messages import unwrap
from k8spilot.model.reference import Reference

_NAMES: Final = re.compile(
    r'"[^"]*"|\b(?:https?|docker)://\S+|\breading manifest \S+ in \S+|\blookup \S+|(?<!\S)\S+: not found$'
)
_MOST_CHARACTERS: Final = 8192
_FULL: Final = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_BROKEN: Final = re.compile(
    r"failed to extract layer|number of layers and diffIDs|mismatched image rootfs|invalid tar header|"
    r"no match for platform|no image found in (?:image index|manifest list)|invalid reference|couldn't parse image|"
    r"must be lowercase|more than 255 characters|unsupported digest algorithm|name invalid|unsupported manifest|"
    r"exceeded maximum allowed size|unpacking failed \(error: exit status \d+; output: (?:unexpected EOF|archive/tar)|"
    r"setting up to decompress blob: (?:(?:unexpected )?EOF$|gzip: invalid|magic number mismatch)|"
    r"does not match config's DiffID|uses a different top layer|"
    r"parsing image configuration: json",
    re.IGNORECASE,
)
"""Errors of the image or its name. They outweigh the rest of the text (a broken layer: "unexpected EOF")."""
_KILLED: Final = (
    r"cannot start a (?:stopped process|container that has stopped)|cannot start an already running container|"
    r"container process is already dead|\bcontainer \S+ is not (?:in created state|running)\b"
)
"""Errors of a start whose container has lost its first process: it was killed before the start, or during it.

The moment decides which program reports it: containerd (cmd/containerd-shim-runc-v2/process/init_state.go), runc
(start.go, and `exec` in libcontainer/container_linux.go), CRI-O (server/container_start.go), or crun
(libcrun_container_start). The messages of the last two are from their sources, and were not seen on a node.
"""
_OF_THE_RUNTIME: Final = (
    r"did not terminate successfully|timeout waiting for systemd|error creating systemd unit|ttrpc: (?:closed|client)|"
    r"transport is closing|failed to start shim|no running task found|namespace path: lstat /proc/"
)
"""Errors of the container runtime itself. They do not depend on the image.

The first was seen on a node whose runc was killed, at create and at start. The others are from sources and issues:
systemd (runc, cgroups/systemd), the shim (containerd issues 4068 and 11505), the sandbox (containerd issue 9160).
"""
_UNAVAILABLE: Final = re.compile(
    r"\b(?:408|425|429|5\d\d) [A-Z][a-z]|unexpected HTTP status: 5\d\d|StatusCode: (?:408|429|5\d\d)|"
    r"toomanyrequests|too many requests|connection (?:refused|reset)|no route to host|network is unreachable|"
    r"i/o timeout|timeout awaiting|TLS handshake timeout|deadline ?exceeded|context (?:deadline|canceled)|\bEOF\b|"
    r"short read|broken pipe|server misbehaving|temporary failure|request timeout|unavailable|QPS exceeded|"
    rf"failed to reserve container name|name is reserved|due to system load|{_KILLED}|{_OF_THE_RUNTIME}|"
    r"cannot allocate memory|too many open files|input/output error",
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
    r"not found|(?:manifest|name|blob) unknown|repository name not known|does not exist", re.IGNORECASE
)
"""Refusals of the registry because it has no such image (codes of the OCI distribution specification)."""

_RATE: Final = re.compile(r"\b429 Too Many|StatusCode: 429|toomanyrequests|too many requests", re.IGNORECASE)
"""A registry's limit of requests, which concerns all images of that registry."""
_ASKING: Final = re.compile(
    r'failed to resolve reference "|\bHead "|\bHEAD request to |pinging container registry ', re.IGNORECASE
)
"""Words about the requests that ask the registry for the image's name. No content of an image has a part in them."""
_URL: Final = re.compile(r"\bhttps?://(?P<host>[^/?#\s\"]*)", re.IGNORECASE)
_LOOKUP: Final = re.compile(r"\blookup (?P<host>[^\s:]+)")
_DOCKER_HUB: Final = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "auth.docker.io"})
"""Hosts of the registry docker.io."""


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


def scope_of(words: str, reference: Reference) -> Scope:
    """Return the part of the image's name that an error of the site, or a temporary one, is about.

    No user must be able to close a slot for all images of a registry. A registry decides by repository who may pull.
    An image may be too large for the node. Its manifest may name any host and path for a layer (`urls` in image-spec,
    descriptor.md). So an error is about the registry only if it names no other host, and if the registry failed when it
    was asked for the image's name, or limits its rate.
    """
    if not _is_own(words, reference):
        return "image"
    bare = _bare(words)
    if _FULL.search(bare) or _BROKEN.search(bare):
        return "image"
    if _UNAVAILABLE.search(bare) or _NO_REGISTRY.search(bare):
        is_registrys = _hosts(words) and (_RATE.search(bare) or _begins_with_question(words))
        return "registry" if is_registrys else "image"
    return "repository" if _NO_ACCESS.search(bare) else "image"


def _is_own(words: str, reference: Reference) -> bool:
    """Return whether an error names no host but those of the image's registry."""
    registry = reference.part("registry")
    own = _DOCKER_HUB if registry in _DOCKER_HUB else {registry}
    return _hosts(words) <= own | {host.rpartition(":")[0] or host for host in own}


def _hosts(words: str) -> set[str]:
    """Return the hosts that an error names."""
    shown = words[:_MOST_CHARACTERS]
    return {match["host"].rpartition("@")[2].lower() for match in _URL.finditer(shown)} | {
        match["host"].lower() for match in _LOOKUP.finditer(shown)
    }


def _begins_with_question(words: str) -> bool:
    """Return whether an error says, before it names a host, that the registry was asked for the image's name."""
    asking, first = _ASKING.search(words), _URL.search(words) or _LOOKUP.search(words)
    return asking is not None and first is not None and asking.start() < first.start()


def _bare(words: str) -> str:
    return " ".join(_NAMES.sub(_replacement, line) for line in unwrap(words[:_MOST_CHARACTERS]).splitlines())


def _replacement(match: re.Match[str]) -> str:
    return "not found" if match[0].endswith("not found") else ""
