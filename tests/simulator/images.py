"""Images of the simulator: what a registry says of them, and what local processes see in their place."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

REGISTRY: Final = "registry.test:5000"

HOST: Final = tuple(
    f"{folder}:{folder}:ro" for folder in ("/bin", "/usr", "/lib", "/lib64", "/etc") if Path(folder).exists()
)
"""The programs of this machine, read-only: in place of the layers of an image with a shell."""

DEVICES: Final = "/dev:/dev"

_SKOPEO: Final = """#!/bin/sh
# A stand-in for skopeo: answers from files, and fails in skopeo's own words.
folder=%s
what=${2#--}
for last; do :; done
reference=${last#docker://}
repository=${reference%%[:@]*}
case $reference in *:*/*) host=${reference%%%%/*} rest=${reference#*/} repository=$host/${rest%%%%[:@]*};; esac
tag=${reference#"$repository"}
fail() {
    words='Error parsing image name \\\\"%%s\\\\": %%s'
    printf "time=\\"2026-01-01T00:00:00Z\\" level=fatal msg=\\"$words\\"\\n" "$last" "$1" >&2
    exit 1
}
echo "$what $reference" >>"$folder/asked"
for one in away "away-$what"; do
    [ -e "$folder/$one" ] && fail "pinging container registry ${reference%%%%/*}: dial tcp: connect: connection refused"
done
[ -e "$folder/words" ] && fail "$(cat "$folder/words")"
[ -e "$folder/$what/$reference" ] || fail "reading manifest ${tag#?} in $repository: manifest unknown: manifest unknown"
exec cat "$folder/$what/$reference"
"""


@dataclass(frozen=True)
class LocalImage:
    """An image, as registry, kubelet and runtime see it."""

    reference: str
    """registry/repository:tag."""
    mounts: tuple[str, ...]
    """Mounts of a container of this image, in the form of container.c."""
    environment: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    groups: tuple[int, ...] = ()
    """Groups that have the jobs' user as a member in the image's /etc/group."""

    @property
    def repository(self) -> str:
        """The reference without its tag."""
        return self.reference.rpartition(":")[0]


class Images:
    """A registry: its images, and a `skopeo` that asks it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._images: list[LocalImage] = []
        self.programs = folder / "programs"
        """To be first on PATH."""
        self.programs.mkdir(parents=True)
        skopeo = self.programs / "skopeo"
        skopeo.write_text(_SKOPEO % folder)
        skopeo.chmod(0o755)

    def add(
        self,
        name: str,
        *,
        mounts: Sequence[str] = HOST,
        entrypoint: Sequence[str] = (),
        command: Sequence[str] = (),
        environment: Mapping[str, str | None] | None = None,
        directory: str = "",
        volumes: Sequence[str] = (),
        groups: Sequence[int] = (),
        architecture: str = "amd64",
    ) -> LocalImage:
        """Push an image `name:tag`, over one that has the name already. A variable with None has a name only."""
        reference = f"{REGISTRY}/{name}"
        configuration = {
            "created": "2026-01-01T00:00:00Z",
            "architecture": architecture,
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": []},
            "config": {
                "Env": [key if value is None else f"{key}={value}" for key, value in (environment or {}).items()],
                "Entrypoint": list(entrypoint),
                "Cmd": list(command),
                "WorkingDir": directory,
                "Volumes": {volume: {} for volume in volumes} or None,
            },
        }
        config = json.dumps(configuration)
        named = {"digest": f"sha256:{_digest(config)}"}
        manifest = json.dumps({"schemaVersion": 2, "config": named, "annotations": {"name": reference}})
        digest = f"sha256:{_digest(manifest)}"
        values = {key: value for key, value in (environment or {}).items() if value is not None}
        image = LocalImage(reference, (DEVICES, *mounts), values, digest, tuple(groups))
        for known in (reference, f"{image.repository}@{digest}"):
            self._write(f"raw/{known}", manifest)
            self._write(f"config/{known}", config)
        self._images = [one for one in self._images if one.reference != reference] + [image]
        return image

    def find(self, reference: str) -> LocalImage | None:
        """Return the image that the runtime pulls for `reference`: by digest if there is one, whatever the tag."""
        name, _, digest = reference.partition("@")
        for image in self._images:
            if digest and image.digest == digest and name.startswith(image.repository):
                return image
            if not digest and image.reference == name:
                return image
        return None

    def set_reachable(self, *, reachable: bool, what: str = "") -> None:
        """Let the pilot reach the registry, or not, or not for `what` (raw, config); the kubelet has its own way."""
        away = self._folder / (f"away-{what}" if what else "away")
        if reachable:
            away.unlink(missing_ok=True)
        else:
            away.touch()

    def fail(self, words: str) -> None:
        """Let the registry fail for the pilot, in skopeo's words."""
        (self._folder / "words").write_text(words)

    @property
    def asked(self) -> list[str]:
        """Requests to the registry: `raw REFERENCE`, `config REFERENCE`."""
        log = self._folder / "asked"
        return log.read_text().splitlines() if log.exists() else []

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
