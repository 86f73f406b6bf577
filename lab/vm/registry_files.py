"""The files of a registry's storage that an image consists of, so that some images can be copied elsewhere.

The layout is that of distribution's driver `filesystem`: names and tags are folders below `repositories`, and each blob
is a file below `blobs`.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("docker/registry/v2")
"""Root of the data, relative to the folder in the registry's configuration."""


def of_image(storage: Path, name: str, tag: str) -> Iterator[Path]:
    """Yield the files of the image `name:tag`, relative to `storage`; none if the registry has no such image."""
    repository = ROOT / "repositories" / name
    link = repository / "_manifests/tags" / tag / "current/link"
    if not (storage / link).is_file():
        return
    digest = (storage / link).read_text().strip()
    yield link
    yield repository / "_manifests/tags" / tag / "index/sha256" / _hex(digest) / "link"
    yield from _of_manifest(storage, repository, digest)


def tags(storage: Path, name: str) -> list[str]:
    """Return the tags that the registry has of an image."""
    folder = storage / ROOT / "repositories" / name / "_manifests/tags"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def names(storage: Path) -> list[str]:
    """Return the names of all images."""
    folder = storage / ROOT / "repositories"
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("_manifests"))


def are_tags(paths: Iterable[Path]) -> set[Path]:
    """Return the files that map a tag to its manifest: the only ones whose content changes."""
    return {path for path in paths if "tags" in path.parts}


def _of_manifest(storage: Path, repository: Path, digest: str) -> Iterator[Path]:
    data = _blob(digest)
    yield repository / "_manifests/revisions/sha256" / _hex(digest) / "link"
    yield data
    manifest = json.loads((storage / data).read_bytes())
    for one in manifest.get("manifests", ()):
        yield from _of_manifest(storage, repository, one["digest"])
    for one in [*manifest.get("layers", ()), *([manifest["config"]] if "config" in manifest else ())]:
        yield repository / "_layers/sha256" / _hex(one["digest"]) / "link"
        yield _blob(one["digest"])


def _blob(digest: str) -> Path:
    return ROOT / "blobs/sha256" / _hex(digest)[:2] / _hex(digest) / "data"


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
