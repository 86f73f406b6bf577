"""Queries of image registries through skopeo.

skopeo implements a registry client: token authentication, mirrors and insecure registries
(containers-registries.conf(5)), credentials (containers-auth.json(5)). The text of a failure is classified
(model/image_errors.py): the registry does not provide the image, which the user has to know; this site has no access to
it, so that the job is for another site; or the registry did not answer, which is not the job's fault.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from k8spilot.common.errors import ImageError, ImageNotHere, RegistryUnreachable
from k8spilot.common.lru import LruDict
from k8spilot.common.untrusted_json import fields, read_json
from k8spilot.model.image import Image
from k8spilot.model.image_errors import Cause, cause_of, scope_of
from k8spilot.model.reference import Reference
from k8spilot.registry.image_index import Choice, architecture, choose, configuration_of, own_platform

logger = logging.getLogger(__name__)

_QUERY_SECONDS: Final = 60.0
_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Limit of an answer in bytes: skopeo reads documents of at most 4 MiB (internal/iolimits in containers/image)."""
_ERROR_BYTES: Final = 64 * 1024
"""Limit of an error message in bytes; the registry contributes to it."""
_MOST_CACHED: Final = 64
_MOST_NESTED: Final = 3
"""Number of nested indexes that are read."""
_IMAGE_FIELDS: Final = ("architecture", "os", "config", "rootfs", "created")
_CONFIG_FIELDS: Final = ("Entrypoint", "Cmd", "Env", "WorkingDir", "User", "Volumes")
"""Fields of an image's configuration that are read (image-spec, config.md). No other field may look like them to
another parser."""
_LOGGED: Final = re.compile(r'level=fatal msg="(?P<message>(?:[^"\\]|\\.)*)"')
_PREFIX: Final = re.compile(r'^Error parsing image name "[^"]*": ')
"""Prefix of skopeo's errors, whatever the error is. The name itself is valid."""


class Registry:
    """Queries registries, and caches immutable answers (by digest)."""

    def __init__(self, credentials: Path | None = None, program: str = "skopeo") -> None:
        self._credentials = credentials
        self._program = program
        self._configurations: LruDict[str, Image] = LruDict(_MOST_CACHED)
        """Used fields of configurations; users choose their size."""
        self._manifests: LruDict[str, Choice | str] = LruDict(_MOST_CACHED)
        """Results of manifests, by digest: the entry for this machine, or the digest of the configuration."""

    async def digest(self, reference: Reference) -> str:
        """Return the digest to bind for the image that `reference` names now.

        It is the digest of the index if the image has one, unless clients could choose differently in it.

        Raises:
            ImageError: the registry does not provide the image.
            ImageNotHere: this site has no access to it.
            RegistryUnreachable: the registry cannot be queried.
        """
        target = reference
        for _ in range(_MOST_NESTED):
            digest, result = await self._read_manifest(target)
            if isinstance(result, str) or result.is_sure:
                return digest
            target = replace(target, digest=result.digest)
        raise ImageError(
            f"image {reference} is an index of indexes, which clients resolve differently; name one image by its digest"
        )

    async def image(self, reference: Reference, digest: str) -> Image:
        """Return the configuration of the image for this machine's platform under `digest`.

        Raises:
            ImageError: the registry does not provide the image.
            ImageNotHere: this site has no access to it.
            RegistryUnreachable: the registry cannot be queried.
        """
        image = self._configurations.get(digest)
        if image is None:
            image = await self._read(reference, digest)
        self._configurations[digest] = image
        return replace(image, reference=reference)

    async def _read(self, reference: Reference, digest: str) -> Image:
        manifest_digest, result = digest, await self._manifest_result(reference, digest)
        if isinstance(result, Choice):
            if not result.is_sure:
                raise ImageError(f"clients resolve {digest} differently; name one image by its digest")
            manifest_digest, result = result.digest, await self._manifest_result(reference, result.digest)
            if isinstance(result, Choice):
                raise ImageError(f"image {reference} is an index of indexes; name one image by its digest")
        text = await self._inspect(reference, "--config", "--raw", f"{reference.repository}@{manifest_digest}")
        # skopeo requests the manifest once more, and the registry may answer with another one.
        if _digest(text) != result:
            raise ImageError(
                f"the registry returned {_digest(text)} for the configuration {result} of image {reference}"
            )
        return replace(_image(reference, digest, text), manifest=manifest_digest)

    async def _manifest_result(self, reference: Reference, digest: str) -> Choice | str:
        """Return the result of the manifest with that digest, from the cache or from the registry."""
        result = self._manifests.get(digest)
        return result if result is not None else (await self._read_manifest(replace(reference, digest=digest)))[1]

    async def _read_manifest(self, target: Reference) -> tuple[str, Choice | str]:
        """Read a manifest. Return its digest and its result.

        Raises:
            ImageError: the registry does not provide the manifest, or it is invalid.
            RegistryUnreachable: the registry cannot be queried.
        """
        text = await self._inspect(target, "--raw", target.source)
        if target.digest is not None and (actual := _digest(text, target.digest.partition(":")[0])) != target.digest:
            raise ImageError(f"the registry returned {actual} for image {target}; it is corrupt")
        try:
            manifest = read_json(text, unique=True)
            result = choose(manifest, architecture()) or configuration_of(manifest)
        except ValueError as error:
            raise ImageError(f"the manifest of image {target} is invalid: {_reason(error)}") from error
        digest = _digest(text)
        self._manifests[digest] = result
        return digest, result

    async def _inspect(self, reference: Reference, *arguments: str) -> bytes:
        *what, source = arguments
        options = [] if self._credentials is None else ["--authfile", str(self._credentials)]
        status, output, errors = await _run(
            [self._program, "inspect", *what, *options, f"docker://{source}"], reference
        )
        if status == 0:
            return output
        raise _error(reference, _message(errors))


def _error(reference: Reference, message: str) -> ImageError | ImageNotHere | RegistryUnreachable:
    """Return the error for skopeo's message."""
    match cause_of(message):
        case Cause.IMAGE:
            return ImageError(f"image {reference} is not available: {message}")
        case Cause.SITE:
            return ImageNotHere(
                f"this site has no access to image {reference}: {message}", scope_of(message, reference)
            )
        case Cause.PASSING:
            return RegistryUnreachable(f"the registry of image {reference} did not answer: {message}")


def _digest(text: bytes, algorithm: str = "sha256") -> str:
    """Return the digest of a document (image-spec, descriptor.md, Digests).

    Raises:
        ImageError: the algorithm is unknown.
    """
    if algorithm not in ("sha256", "sha384", "sha512"):
        raise ImageError(f"a digest of {algorithm} is not supported; use a sha256 digest")
    return f"{algorithm}:{hashlib.new(algorithm, text).hexdigest()}"


def _reason(error: ValueError) -> str:
    return f"it is not JSON ({error})" if isinstance(error, (json.JSONDecodeError, UnicodeError)) else str(error)


async def _run(command: Sequence[str], reference: Reference) -> tuple[int, bytes, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:  # no memory or process: not the job's fault
        raise RegistryUnreachable(f"{command[0]} cannot be started ({error.strerror})") from error
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(_QUERY_SECONDS):
            output, errors = await asyncio.gather(
                _beginning(process.stdout, _ANSWER_BYTES + 1), _beginning(process.stderr, _ERROR_BYTES)
            )
            await process.wait()
    except TimeoutError:
        raise RegistryUnreachable(
            f"the registry of image {reference} did not answer within {_QUERY_SECONDS:.0f} s"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()  # asyncio reports the end only after all output is read
    if len(output) > _ANSWER_BYTES:
        raise ImageError(f"the registry's answer about image {reference} has more than {_ANSWER_BYTES >> 20} MiB")
    assert process.returncode is not None
    return process.returncode, output, errors.decode("utf-8", "replace")


async def _beginning(stream: asyncio.StreamReader, most: int) -> bytes:
    """Read to the end, and keep so many bytes of it."""
    kept = bytearray()
    while part := await stream.read(64 * 1024):
        kept += part[: most - len(kept)]
    return bytes(kept)


def _message(errors: str) -> str:
    """Return skopeo's own sentence from its log line."""
    match = _LOGGED.search(errors)
    message = match["message"].replace('\\"', '"') if match else errors
    message = _PREFIX.sub("", message)
    return " ".join(message.split())[:400]


def _texts(value: Any) -> tuple[str, ...]:
    if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        raise TypeError
    return tuple(value or ())


def _image(reference: Reference, digest: str, text: bytes) -> Image:
    """Return the image with the configuration `text`."""
    try:
        values = fields(read_json(text, unique=True), _IMAGE_FIELDS)
        settings = fields(values.get("config") or {}, _CONFIG_FIELDS)
    except ValueError as error:
        raise ImageError(f"the configuration of image {reference} is invalid: {_reason(error)}") from error
    if not values.get("architecture") or "rootfs" not in values:
        # The runtime would start it with an empty root file system (image-spec, config.md: both fields are required).
        raise ImageError(f"{reference} is not a container image but another artifact; name an image")
    system = str(values.get("os") or "linux")
    try:
        own_architecture = own_platform(str(values["architecture"]), system, architecture())
    except ValueError as error:
        raise ImageError(f"image {reference} cannot run here: {error}") from error
    try:
        return Image(
            reference=reference,
            digest=digest,
            identifier=_digest(text),
            architecture=own_architecture,
            os=system,
            entrypoint=_texts(settings.get("Entrypoint")),
            command=_texts(settings.get("Cmd")),
            environment=_texts(settings.get("Env")),
            directory=str(settings.get("WorkingDir") or ""),
            user=str(settings.get("User") or ""),
            volumes=tuple(dict(settings.get("Volumes") or {})),
            created=str(values.get("created") or "0001-01-01T00:00:00Z"),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ImageError(f"the configuration of image {reference} is corrupt; push the image again") from error
