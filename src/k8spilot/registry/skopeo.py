"""What registries say of images, asked through skopeo.

skopeo knows what a registry client must: token authentication, mirrors and insecure registries
(containers-registries.conf(5)), credentials (containers-auth.json(5)). A failure is sorted by its words
(model/image_errors.py) into "there is no such image for you", which the user has to know, and "the registry did not
answer", which is nobody's fault.
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

from k8spilot.common.errors import ImageError, RegistryUnreachable
from k8spilot.common.lru import LruDict
from k8spilot.common.untrusted_json import fields, read_json
from k8spilot.model.image import Image
from k8spilot.model.image_errors import may_pass
from k8spilot.model.reference import Reference
from k8spilot.registry.image_index import Choice, architecture, choose, configuration_of

logger = logging.getLogger(__name__)

_SECONDS: Final = 60.0
_MOST_ANSWERED: Final = 8 * 1024 * 1024
"""Bytes: skopeo reads documents of 4 MiB at most (internal/iolimits in containers/image)."""
_MOST_SAID: Final = 64 * 1024
"""Bytes that are kept of what it says of a failure, in which the registry has words, too."""
_KEPT: Final = 64
_NESTED: Final = 3
"""Manifests that are read until there is one to bind."""
_IMAGE: Final = ("architecture", "os", "config", "rootfs", "created")
_CONFIG: Final = ("Entrypoint", "Cmd", "Env", "WorkingDir", "User", "Volumes")
"""What is read of an image (image-spec, config.md); nothing may look like it to others."""
_LOGGED: Final = re.compile(r'level=fatal msg="(?P<message>(?:[^"\\]|\\.)*)"')
_PREFIX: Final = re.compile(r'^Error parsing image name "[^"]*": ')
"""What skopeo says first whatever went wrong; the name is right."""


class Registry:
    """Asks registries; remembers what cannot change (configurations, by digest)."""

    def __init__(self, credentials: Path | None = None, program: str = "skopeo") -> None:
        self._credentials = credentials
        self._program = program
        self._configurations: LruDict[str, Image] = LruDict(_KEPT)
        """What is used of them: users choose how much there is in one."""
        self._manifests: LruDict[str, Choice | str] = LruDict(_KEPT)
        """What manifests say, by digest: which image is ours, of an index; else the configuration's digest."""

    async def digest(self, reference: Reference) -> str:
        """The digest to bind for what `reference` names now.

        It is an index's, where the image has one for each platform, unless clients could choose differently in it.

        Raises:
            ImageError: the registry says that there is no such image, or not for us.
            RegistryUnreachable: it could not be asked.
        """
        asked = reference
        for _ in range(_NESTED):
            digest, said = await self._look(asked)
            if isinstance(said, str) or said.is_sure:
                return digest
            asked = replace(asked, digest=said.digest)
        raise ImageError(
            f"image {reference} is an index of indexes, which clients resolve differently; name one of its images"
        )

    async def image(self, reference: Reference, digest: str) -> Image:
        """The configuration of the image of this machine's platform under `digest`.

        Raises:
            ImageError, RegistryUnreachable: as above.
        """
        found = self._configurations.get(digest)
        if found is None:
            found = await self._read(reference, digest)
        self._configurations[digest] = found
        return replace(found, reference=reference)

    async def _read(self, reference: Reference, digest: str) -> Image:
        own, said = digest, await self._known(reference, digest)
        if isinstance(said, Choice):
            if not said.is_sure:
                raise ImageError(f"which image of {digest} clients take is not to be told")
            own, said = said.digest, await self._known(reference, said.digest)
            if isinstance(said, Choice):
                raise ImageError(f"image {reference} is an index of indexes; name one of its images")
        text = await self._inspect(reference, "--config", "--raw", f"{reference.repository}@{own}")
        # skopeo asks for the manifest once more, and the registry may have another one for it.
        if _digest(text) != said:
            raise ImageError(f"the registry answered {_digest(text)} for the configuration {said} of image {reference}")
        return replace(_image(reference, digest, text), manifest=own)

    async def _known(self, reference: Reference, digest: str) -> Choice | str:
        """What the manifest of that digest says, now or the last time."""
        said = self._manifests.get(digest)
        return said if said is not None else (await self._look(replace(reference, digest=digest)))[1]

    async def _look(self, asked: Reference) -> tuple[str, Choice | str]:
        """Read a manifest: its digest, and what it says."""
        text = await self._inspect(asked, "--raw", asked.source)
        if asked.digest is not None and (told := _digest(text, asked.digest.partition(":")[0])) != asked.digest:
            raise ImageError(f"the registry answered {told} when asked for image {asked}; it is corrupt")
        try:
            manifest = read_json(text, unique=True)
            said = choose(manifest, architecture()) or configuration_of(manifest)
        except ValueError as error:
            raise ImageError(f"the manifest of image {asked} cannot be used: {_said(error)}") from error
        digest = _digest(text)
        self._manifests[digest] = said
        return digest, said

    async def _inspect(self, reference: Reference, *arguments: str) -> bytes:
        *what, source = arguments
        options = [] if self._credentials is None else ["--authfile", str(self._credentials)]
        status, output, errors = await _run(
            [self._program, "inspect", *what, *options, f"docker://{source}"], reference
        )
        if status == 0:
            return output
        words = _words(errors)
        if not may_pass(words):
            raise ImageError(f"image {reference} is not available: {words}")
        raise RegistryUnreachable(f"the registry of image {reference} did not answer: {words}")


def _digest(text: bytes, algorithm: str = "sha256") -> str:
    """The digest of a document (image-spec, descriptor.md, Digests); raises ImageError for an unknown algorithm."""
    if algorithm not in ("sha256", "sha384", "sha512"):
        raise ImageError(f"images cannot be named by a digest of {algorithm} here; name it by one of sha256")
    return f"{algorithm}:{hashlib.new(algorithm, text).hexdigest()}"


def _said(error: ValueError) -> str:
    return f"it is not JSON ({error})" if isinstance(error, (json.JSONDecodeError, UnicodeError)) else str(error)


async def _run(command: Sequence[str], reference: Reference) -> tuple[int, bytes, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:  # no memory, no process: nothing that a job is to blame for
        raise RegistryUnreachable(f"{command[0]} cannot be started ({error.strerror})") from error
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(_SECONDS):
            output, errors = await asyncio.gather(
                _beginning(process.stdout, _MOST_ANSWERED + 1), _beginning(process.stderr, _MOST_SAID)
            )
            await process.wait()
    except TimeoutError:
        raise RegistryUnreachable(f"the registry of image {reference} did not answer within {_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()  # it does not count as ended before all that it has written is read
    if len(output) > _MOST_ANSWERED:
        raise ImageError(f"what the registry answers about image {reference} has more than {_MOST_ANSWERED >> 20} MiB")
    assert process.returncode is not None
    return process.returncode, output, errors.decode("utf-8", "replace")


async def _beginning(stream: asyncio.StreamReader, most: int) -> bytes:
    """Read to the end, and keep so many bytes of it."""
    kept = bytearray()
    while part := await stream.read(64 * 1024):
        kept += part[: most - len(kept)]
    return bytes(kept)


def _words(errors: str) -> str:
    """Skopeo's own sentence, out of its log line."""
    match = _LOGGED.search(errors)
    words = match["message"].replace('\\"', '"') if match else errors
    words = _PREFIX.sub("", words)
    return " ".join(words.split())[:400]


def _texts(value: Any) -> tuple[str, ...]:
    if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        raise TypeError
    return tuple(value or ())


def _image(reference: Reference, digest: str, text: bytes) -> Image:
    """The image that has the configuration `text`."""
    try:
        found = fields(read_json(text, unique=True), _IMAGE)
        settings = fields(found.get("config") or {}, _CONFIG)
    except ValueError as error:
        raise ImageError(f"the configuration of image {reference} cannot be used: {_said(error)}") from error
    if not found.get("architecture") or "rootfs" not in found:
        # The runtime would start it as an empty root file system (image-spec, config.md: both are required).
        raise ImageError(f"{reference} is no container image but some other artifact; name an image")
    try:
        return Image(
            reference=reference,
            digest=digest,
            identifier=_digest(text),
            architecture=str(found["architecture"]),
            os=str(found.get("os", "linux")),
            entrypoint=_texts(settings.get("Entrypoint")),
            command=_texts(settings.get("Cmd")),
            environment=_texts(settings.get("Env")),
            directory=str(settings.get("WorkingDir") or ""),
            user=str(settings.get("User") or ""),
            volumes=tuple(dict(settings.get("Volumes") or {})),
            created=str(found.get("created") or "0001-01-01T00:00:00Z"),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ImageError(f"the configuration of image {reference} is not one; it is corrupt") from error
