"""Manifests: the image of an index (image-spec, image-index.md) for this machine, and its configuration.

Clients interpret platforms differently. containerd (platforms.Normalize, platforms.Only) treats `x86_64` as amd64 and
its variant `v1` as none, ignores case, and skips entries that name features. skopeo (containers/image, pkg/platform)
takes platforms literally. An index can be written so that containerd runs another image than skopeo has inspected.
"""

import platform
import re
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common.untrusted_json import fields

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_OTHER_NAMES: Final = {**_MACHINES, "x86-64": "amd64"}
_PLAIN: Final = {"arm64": ("", "v8")}
"""Variants that are equal to no variant."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEMA_1: Final = frozenset({"signatures", "fslayers", "history"})
"""Fields of Docker's schema 1 manifests, whose meaning and digest depend on the client (libtrust)."""
_ENTRY: Final = ("digest", "platform", "mediaType")
_PLATFORM: Final = ("architecture", "os", "variant", "os.version", "os.features", "features")
_CHECKPOINTS: Final = ("io.kubernetes.cri-o.annotations.checkpoint.", "org.criu.checkpoint.")
"""Begins of the annotations of checkpoints (CRI-O; containerd and checkpointctl)."""
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


@dataclass(frozen=True, slots=True)
class Choice:
    """An entry of an index."""

    digest: str
    """Digest of the image's manifest."""
    is_sure: bool
    """Whether every client selects this entry of that index."""


def architecture() -> str:
    """Return this machine's architecture with Go's name, which images and Docker use."""
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


def choose(manifest: Any, machine: str) -> Choice | None:
    """Return the entry of an index for `machine`; None if `manifest` is the manifest of one image.

    Raises:
        ValueError: `manifest`, any JSON, has another form, clients interpret it differently, or it has no image for the
            machine.
    """
    value = fields(manifest, ("manifests", "config", "annotations"))
    _check_annotations(value)
    if any(name.casefold() in _SCHEMA_1 for name in value):
        raise ValueError("it is in Docker's old schema 1, which nodes no longer run; push the image again")
    entries = value.get("manifests")
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise ValueError("its manifests are not a list")  # noqa: TRY004 -- ValueError for every invalid document
    candidates = [entry for entry in entries if _may_be(fields(entry, _ENTRY).get("platform"), machine)]
    if not candidates:
        raise ValueError(f"it has images for other platforms, but none for linux/{machine}")
    for entry in candidates:
        _checked(entry)
    plain = [entry for entry in candidates if _is_plain(entry, machine)]
    return Choice((plain or candidates)[0]["digest"], is_sure=len(plain) == len(candidates) == 1)


def configuration_of(manifest: Any) -> str:
    """Return the digest of the configuration in the manifest of one image.

    Raises:
        ValueError: there is none, or the image is a checkpoint.
    """
    found = fields(manifest, ("config", "annotations"))
    _check_annotations(found)
    return _checked(fields(found.get("config"), ("digest",)))


def _check_annotations(value: dict[str, Any]) -> None:
    """Raise ValueError if a manifest or an index is a checkpoint of a container.

    A runtime restores the processes of one instead of starting the pod's own program, and pulls an image that the
    checkpoint names. CRI-O looks at the manifest (1.36, server/container_restore.go), containerd 2.1 to 2.3 at the
    object that the reference names, index or not (internal/cri/server/container_checkpoint_linux.go).
    """
    annotations = value.get("annotations")
    if annotations is not None and any(name.startswith(_CHECKPOINTS) for name in fields(annotations, ())):
        raise ValueError("it is a checkpoint of a container; name the image that the container had")


def own_platform(name: str, system: str, machine: str) -> str:
    """Return the architecture in an image's configuration, in Go's spelling, if the image is for `machine`.

    Raises:
        ValueError: the image is for another platform, or it is no image that can run.
    """
    name, system = name.lower(), system.lower()
    if name == "unknown" or system == "unknown":
        raise ValueError("it has no platform: it is an attestation or another artifact, and not a container image")
    spelled = _OTHER_NAMES.get(name, name)
    if (system, spelled) != ("linux", machine):
        raise ValueError(f"it is for {system}/{spelled}, and the node runs linux/{machine}; push an image for that")
    return spelled


def _checked(value: dict[str, Any]) -> str:
    digest = value.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise ValueError("it has an entry without a sha256 digest")
    return digest


def _may_be(value: Any, machine: str) -> bool:
    """Return whether a client may select an entry of this platform on Linux; a missing field matches anything."""
    if value is None:
        return True
    name, system = (str(fields(value, _PLATFORM).get(field) or "").lower() for field in ("architecture", "os"))
    return _OTHER_NAMES.get(name, name) in ("", machine) and system in ("", "linux")


def _is_plain(entry: dict[str, Any], machine: str) -> bool:
    """Return whether every client interprets the entry's platform equally."""
    given = entry.get("platform")
    if entry.get("mediaType") not in _MANIFESTS:
        return False
    platform_fields = {name: value for name, value in (given or {}).items() if value}
    is_common = platform_fields.pop("variant", "") in _PLAIN.get(machine, ("",))
    return is_common and platform_fields == {"architecture": machine, "os": "linux"}
