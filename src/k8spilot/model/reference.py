"""Image references, by the grammar of the distribution project (reference/regexp.go in distribution/reference)."""

import re
from dataclasses import dataclass
from typing import Final

from k8spilot.common.errors import ImageError, Scope

_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REFERENCE: Final = re.compile(
    rf"(?P<repository>(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_TAG_SIZE: Final = 128
_REPOSITORY_SIZE: Final = 255
_SIZE: Final = 1024
"""Limit of a reference's length, above every valid reference."""

_DEFAULT_REGISTRY: Final = "docker.io"

FILE_IMAGE: Final = "k8spilot.invalid/image-is-a-file"
"""Placeholder for an image that is a file or folder: no registry has such a name (RFC 2606, .invalid)."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference `repository[:tag][@digest]`. The repository includes the registry.

    `busybox` is `docker.io/library/busybox`.
    """

    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.repository}{tag}{digest}"

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Parse a reference as `docker run` does. Without tag and digest it means `latest`.

        Raises:
            ImageError: the reference is invalid.
        """
        match = _REFERENCE.fullmatch(text) if len(text) <= _SIZE else None
        if match is None or len(match["repository"]) > _REPOSITORY_SIZE:
            shown = text if len(text) <= _REPOSITORY_SIZE else f"{text[:_REPOSITORY_SIZE]}..."
            raise ImageError(
                f"'{shown}' is not a valid image reference; write it as [registry/]repository[:tag][@digest], "
                "with the repository in lower case"
            )
        if match["repository"] == FILE_IMAGE:
            raise ImageError(
                "the job's image is a file or folder, or none that this site knows; jobs here run in images from "
                "registries: set container_image = docker://... in the submit file, or ask the site to map the image"
            )
        tag = match["tag"] or (None if match["digest"] else "latest")
        return cls(_with_registry(match["repository"]), tag, match["digest"])

    @property
    def source(self) -> str:
        """The reference for queries of a registry: by digest if there is one, because Docker ignores the tag then."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"

    def part(self, scope: Scope) -> str:
        """Return the registry, the repository, or the name of the image itself. No two of them look alike."""
        match scope:
            case "registry":
                return self.repository.partition("/")[0]
            case "repository":
                return self.repository
            case "image":
                return self.source

    def fresh(self, digest: str, unique: str) -> str:
        """Return a reference to the same image that no container has used before: `repository:tag-unique@digest`.

        The kubelet counts restarts by container name and spec, including the restarts that it caused for a change of
        image. A repeated reference would therefore lead to CrashLoopBackOff. With a digest the container runtime
        ignores the tag. The user's tag stays visible in the pod's status.
        """
        kept = (self.tag or "by-digest")[: _TAG_SIZE - len(unique) - 1]
        return f"{self.repository}:{kept}-{unique}@{digest}"


def _with_registry(repository: str) -> str:
    """Return the full name of a repository (reference/normalize.go in distribution/reference, splitDockerDomain)."""
    first, slash, _ = repository.partition("/")
    if slash and (first == "localhost" or any(character in first for character in ".:") or first != first.lower()):
        return (
            repository.replace("index.docker.io/", f"{_DEFAULT_REGISTRY}/", 1)
            if first == "index.docker.io"
            else repository
        )
    return f"{_DEFAULT_REGISTRY}/{repository if slash else f'library/{repository}'}"


def is_same(one: Reference | None, other: Reference) -> bool:
    """Return whether `one` exists and names the same source as `other`."""
    return one is not None and one.source == other.source
