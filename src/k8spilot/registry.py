"""What registries say of images, asked through skopeo.

skopeo knows what a registry client must: token authentication, mirrors and insecure registries
(containers-registries.conf(5)), credentials (containers-auth.json(5)). A failure is sorted by its words
(model/refusals.py) into "there is no such image for you", which the user has to know, and "the registry did not
answer", which is nobody's fault.
"""

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from k8spilot.errors import ImageError, RegistryUnreachable
from k8spilot.foreign import read_json
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.model.refusals import may_pass

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SECONDS: Final = 60.0
_KEPT: Final = 64
_LOGGED: Final = re.compile(r'level=fatal msg="(?P<message>(?:[^"\\]|\\.)*)"')
_PREFIX: Final = re.compile(r'^Error parsing image name "[^"]*": ')
"""What skopeo says first whatever went wrong; the name is right."""


class Registry:
    """Asks registries; remembers what cannot change (configurations, by digest)."""

    def __init__(self, credentials: Path | None = None, program: str = "skopeo") -> None:
        self._credentials = credentials
        self._program = program
        self._configurations: OrderedDict[str, Image] = OrderedDict()
        """What is used of them: users choose how much there is in one."""
        self._indexes: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        """Entries of indexes (image-spec, image-index.md), by the index's digest."""

    async def digest(self, reference: Reference) -> str:
        """The digest of what `reference` names now: of an index, where the image has one for each platform.

        Raises:
            ImageError: the registry says that there is no such image, or not for us.
            RegistryUnreachable: it could not be asked.
        """
        manifest = await self._inspect(reference, "--raw", reference.source)
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        if reference.digest is not None and reference.digest.startswith("sha256:") and reference.digest != digest:
            raise ImageError(f"the registry answered {digest} when asked for image {reference}; it is corrupt")
        _keep(self._indexes, digest, _entries(manifest))
        return digest

    async def image(self, reference: Reference, digest: str) -> Image:
        """The configuration of the image of this machine's platform under `digest`.

        Raises:
            ImageError, RegistryUnreachable: as above.
        """
        found = self._configurations.get(digest)
        if found is None:
            # Raw, since the digest of these bytes is the image's id.
            text = await self._inspect(reference, "--config", "--raw", f"{reference.repository}@{digest}")
            try:
                parsed = read_json(text)
            except ValueError as error:
                raise ImageError(f"the configuration of image {reference} is not JSON; it is corrupt") from error
            if not isinstance(parsed, dict) or not parsed.get("architecture") or "rootfs" not in parsed:
                # The runtime would start it as an empty root file system (image-spec, config.md: both are required).
                raise ImageError(f"{reference} is no container image but some other artifact; name an image")
            parsed["id"] = "sha256:" + hashlib.sha256(text).hexdigest()
            try:
                found = _image(reference, digest, parsed)
            except (AttributeError, TypeError, ValueError) as error:
                raise ImageError(f"the configuration of image {reference} is not one; it is corrupt") from error
        _keep(self._configurations, digest, found)
        platform = {"architecture": found.architecture, "os": found.os}
        own = [one["digest"] for one in self._indexes.get(digest, ()) if platform.items() <= one["platform"].items()]
        return replace(found, reference=reference, manifests=tuple(own))

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
            raise ImageError(f"image {reference} cannot be had: {words}")
        raise RegistryUnreachable(f"the registry of image {reference} did not answer: {words}")


def _keep(store: OrderedDict[str, T], digest: str, value: T) -> None:
    store[digest] = value
    store.move_to_end(digest)
    if len(store) > _KEPT:
        store.popitem(last=False)


def _entries(manifest: bytes) -> list[dict[str, Any]]:
    """The entries of an index that are for a platform; none if `manifest` is that of one image."""
    try:
        document = read_json(manifest)
    except ValueError:
        return []
    entries = document.get("manifests") if isinstance(document, dict) else None
    return [
        {"digest": one["digest"], "platform": {name: one["platform"].get(name) for name in ("architecture", "os")}}
        for one in (entries if isinstance(entries, list) else ())
        if isinstance(one, dict) and isinstance(one.get("platform"), dict) and isinstance(one.get("digest"), str)
    ]


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
        async with asyncio.timeout(_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        raise RegistryUnreachable(f"the registry of image {reference} did not answer within {_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output, errors.decode("utf-8", "replace")


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


def _image(reference: Reference, digest: str, found: dict[str, Any]) -> Image:
    settings = found.get("config") or {}
    return Image(
        reference=reference,
        digest=digest,
        identifier=str(found["id"]),
        architecture=str(found.get("architecture", "")),
        os=str(found.get("os", "linux")),
        entrypoint=_texts(settings.get("Entrypoint")),
        command=_texts(settings.get("Cmd")),
        environment=_texts(settings.get("Env")),
        directory=str(settings.get("WorkingDir") or ""),
        user=str(settings.get("User") or ""),
        volumes=tuple(dict(settings.get("Volumes") or {})),
        created=str(found.get("created") or "0001-01-01T00:00:00Z"),
    )
