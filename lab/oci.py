"""Images that no Dockerfile can describe, made byte by byte and pushed to a registry."""

import base64
import hashlib
import http.client
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.errors import LabError

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
SINGLE: Final = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
"""Kinds of manifests of an image for one platform."""

BUSYBOX: Final = Path("/bin/busybox")


@dataclass(frozen=True)
class Entry:
    """One member of a layer, owned by root: a file with `data`, a link to `link`, else a folder."""

    path: str
    """Relative; `.` is the root folder itself."""
    mode: int = 0o755
    data: bytes | None = None
    link: str = ""

    def tar_info(self) -> tarfile.TarInfo:
        """Return the entry as tarfile describes it."""
        info = tarfile.TarInfo(self.path)
        info.mode = self.mode
        if self.link:
            info.type, info.linkname = tarfile.SYMTYPE, self.link
        elif self.data is None:
            info.type = tarfile.DIRTYPE
        else:
            info.size = len(self.data)
        return info


@dataclass(frozen=True)
class OciImage:
    """An image for one platform."""

    layers: Sequence[bytes] = ()
    """Tar archives, not compressed."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """`config` of the image's configuration: Env, Cmd, Entrypoint, User, ..."""
    architecture: str = "amd64"
    platform: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of its platform in an index; they may replace architecture and operating system."""


def layer(*entries: Entry) -> bytes:
    """A layer with `entries`, in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry.tar_info(), io.BytesIO(entry.data) if entry.data is not None else None)
    return buffer.getvalue()


def shell(folder_mode: int = 0o755) -> bytes:
    """A layer with busybox as /bin/sh; /bin has `folder_mode`."""
    return layer(
        Entry("bin", folder_mode),
        Entry("bin/busybox", data=BUSYBOX.read_bytes()),
        *(Entry(f"bin/{name}", link="busybox") for name in ("sh", "cat", "id", "ls", "env", "pwd", "echo", "true")),
    )


class Pusher:
    """Client that puts images into the registry at `address` (host:port, plain HTTP). Its methods raise LabError."""

    def __init__(self, address: str, user: str = "", password: str = "") -> None:
        self.address = address
        """host:port."""
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}"} if user else {}

    def push(self, name: str, *images: OciImage) -> str:
        """Push one image, or an index of several, as `name:tag`; return the reference `name:tag@digest`."""
        repository, _, tag = name.partition(":")
        manifests = [self._manifest(repository, image) for image in images]
        if len(images) == 1:
            document, kind = manifests[0], MANIFEST
        else:
            document, kind = self._index(repository, images, manifests), INDEX
        digest = self.put_manifest(repository, tag or "latest", document, kind)
        return f"{self.address}/{repository}:{tag or 'latest'}@{digest}"

    def push_with(self, image: str, tag: str, addition: bytes) -> str:
        """Push `image`, which the registry has, with another layer on top; return the reference `name:tag@digest`.

        A pod that names the tag alone can get an older image: a node keeps the image of a tag that it has pulled once.
        """
        name, _, digest = image.removeprefix(f"{self.address}/").partition("@")
        repository, _, named = name.partition(":")
        manifest = json.loads(self._get(f"/v2/{repository}/manifests/{digest or named}", ", ".join(SINGLE)))
        configuration = json.loads(self._get(f"/v2/{repository}/blobs/{manifest['config']['digest']}"))
        configuration["rootfs"]["diff_ids"].append(digest_of(addition))
        configuration.pop("history", None)
        manifest["config"] |= self._descriptor(repository, manifest["config"]["mediaType"], _encoded(configuration))
        manifest["layers"].append(self._descriptor(repository, LAYER, addition))
        digest = self.put_manifest(repository, tag, _encoded(manifest), manifest["mediaType"])
        return f"{self.address}/{repository}:{tag}@{digest}"

    def put_manifest(self, repository: str, reference: str, document: bytes, kind: str) -> str:
        """Put a manifest as it is; return its digest."""
        self._ask("PUT", f"/v2/{repository}/manifests/{reference}", document, {"Content-Type": kind})
        return digest_of(document)

    def put_blob(self, repository: str, data: bytes) -> str:
        """Put a blob; return its digest."""
        digest = digest_of(data)
        where = self._ask("POST", f"/v2/{repository}/blobs/uploads/").getheader("Location", "")
        self._ask("PUT", f"{where}{'&' if '?' in where else '?'}digest={digest}", data)
        return digest

    def digest(self, repository: str, tag: str) -> str:
        """Return the digest of the manifest `repository:tag`."""
        return self._ask(
            "HEAD", f"/v2/{repository}/manifests/{tag}", headers={"Accept": f"{MANIFEST}, {INDEX}"}
        ).getheader("Docker-Content-Digest", "")

    def _get(self, path: str, kinds: str = "*/*") -> bytes:
        return self._exchange("GET", path, headers={"Accept": kinds})[1]

    def _manifest(self, repository: str, image: OciImage) -> bytes:
        configuration = json.dumps(
            {
                "architecture": image.architecture,
                "os": "linux",
                "config": dict(image.config),
                "rootfs": {"type": "layers", "diff_ids": [digest_of(data) for data in image.layers]},
            }
        ).encode()
        return json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": self._descriptor(repository, CONFIG, configuration),
                "layers": [self._descriptor(repository, LAYER, data) for data in image.layers],
            }
        ).encode()

    def _index(self, repository: str, images: Sequence[OciImage], manifests: Sequence[bytes]) -> bytes:
        entries = []
        for image, manifest in zip(images, manifests, strict=True):
            digest = self.put_manifest(repository, digest_of(manifest), manifest, MANIFEST)
            platform = {"architecture": image.architecture, "os": "linux", **image.platform}
            entries.append({"mediaType": MANIFEST, "digest": digest, "size": len(manifest), "platform": platform})
        return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()

    def _descriptor(self, repository: str, kind: str, data: bytes) -> dict[str, Any]:
        return {"mediaType": kind, "digest": self.put_blob(repository, data), "size": len(data)}

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        return self._exchange(method, path, body, headers)[0]

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request(method, path, body, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as problem:
            raise LabError(f"the registry at {self.address} does not answer: {problem}") from problem
        finally:
            connection.close()
        if answer.status >= 300:
            raise LabError(
                f"the registry at {self.address} answers {answer.status} to {method} {path}: {content[:300]!r}"
            )
        return answer, content


def _encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def digest_of(data: bytes) -> str:
    """Return the digest by which registries name `data`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
