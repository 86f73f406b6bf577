"""What manifests say: which image of an index (image-spec, image-index.md) is this machine's, and its configuration.

Clients read platforms differently. containerd (platforms.Normalize, platforms.Only) takes `x86_64` for amd64 and its
variant `v1` for none, compares without case, and leaves out what names features; skopeo (containers/image,
pkg/platform) takes platforms as they are written. An index can be made so that one runs another image than the other
has looked at.
"""

import platform
import re
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common.untrusted_json import fields

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_OTHER_NAMES: Final = {**_MACHINES, "x86-64": "amd64"}
_PLAIN: Final = {"arm64": ("", "v8")}
"""Variants that are the same as none."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEMA_1: Final = frozenset({"signatures", "fslayers", "history"})
"""Docker's first manifests: what they mean and what their digest is depends on who reads them (libtrust)."""
_ENTRY: Final = ("digest", "platform", "mediaType")
_PLATFORM: Final = ("architecture", "os", "variant", "os.version", "os.features", "features")
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One entry of an index."""

    digest: str
    """Of the image's manifest."""
    is_sure: bool
    """Whether every client takes this entry of that index."""


def architecture() -> str:
    """This machine's architecture in Go's words, which images and Docker use."""
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


def choose(manifest: Any, machine: str) -> Choice | None:
    """The entry of an index that is for `machine`; None if `manifest` is one image's.

    Raises:
        ValueError: `manifest`, any JSON, is of another shape, or such that readers take it differently, or it has
            nothing for the machine.
    """
    found = fields(manifest, ("manifests", "config"))
    if any(name.casefold() in _SCHEMA_1 for name in found):
        raise ValueError("it is in Docker's old schema 1, which nodes do not run any more; push the image again")
    entries = found.get("manifests")
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise ValueError("its manifests are no list")  # noqa: TRY004 -- as all that is wrong with a document
    own = [one for one in entries if _may_be(fields(one, _ENTRY).get("platform"), machine)]
    if not own:
        raise ValueError(f"it has images for other platforms, and none for linux/{machine}")
    for one in own:
        _checked(one)
    plain = [one for one in own if _is_plain(one, machine)]
    return Choice((plain or own)[0]["digest"], is_sure=len(plain) == len(own) == 1)


def configuration_of(manifest: Any) -> str:
    """The digest of the configuration that one image's manifest names.

    Raises:
        ValueError: it names none.
    """
    return _checked(fields(fields(manifest, ("config",)).get("config"), ("digest",)))


def _checked(found: dict[str, Any]) -> str:
    digest = found.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise ValueError("it names something without a sha256 digest")
    return digest


def _may_be(found: Any, machine: str) -> bool:
    """Whether some client could take an entry of this platform on Linux; what is not said may be anything."""
    if found is None:
        return True
    name, system = (str(fields(found, _PLATFORM).get(one) or "").lower() for one in ("architecture", "os"))
    return _OTHER_NAMES.get(name, name) in ("", machine) and system in ("", "linux")


def _is_plain(entry: dict[str, Any], machine: str) -> bool:
    """Whether no client can mistake whose image the entry is."""
    found = entry.get("platform")
    if entry.get("mediaType") not in _MANIFESTS:
        return False
    said = {name: value for name, value in (found or {}).items() if value}
    is_common = said.pop("variant", "") in _PLAIN.get(machine, ("",))
    return is_common and said == {"architecture": machine, "os": "linux"}
