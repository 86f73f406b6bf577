"""The images of the benchmark's jobs (a shell and bench/payload/work.c), and the sizes of images."""

import contextlib
import json
import os
import tempfile
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from lab.api import Lab
from lab.errors import LabError
from lab.http import opened
from lab.oci import Entry, OciImage, Pusher, layer, shell
from lab.outages import remove_image
from lab.shell import run

SOURCE = Path(__file__).with_name("payload") / "work.c"
PROGRAM = "/bin/work"
COLD = "bench-cold"
COLD_BYTES = 32 * 2**20
_ACCEPT = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


def ensure(lab: Lab) -> str:
    """Compile and push the image `bench`; return its reference, with a digest. Raises LabError."""
    return Pusher(lab.registry).push("bench:latest", _image())


def other(lab: Lab) -> str:
    """Push an image that differs from `ensure`'s by one file; return its reference, with a digest. Raises LabError."""
    image = _image()
    return Pusher(lab.registry).push("bench-other:latest", OciImage((*image.layers, layer(Entry("other", data=b"")))))


def fresh(lab: Lab) -> str:
    """Push an image that no node has, with 32 MiB of incompressible data; return its reference with a digest."""
    filling = layer(Entry("filling", data=os.urandom(COLD_BYTES)))
    image = _image()
    tag = os.urandom(6).hex()
    return Pusher(lab.registry).push(f"{COLD}:{tag}", OciImage((*image.layers, filling)))


def renamed(reference: str) -> str:
    """Give the image a new tag: the kubelet then starts a new container and pulls nothing. Return the reference."""
    name, _, digest = reference.partition("@")
    return f"{name.rpartition(':')[0]}:bench-{os.urandom(6).hex()}@{digest}"


def forget_fresh(lab: Lab) -> None:
    """Remove all images of `fresh` from node and registry, also those of killed runs. Raises LabError.

    Containers may be running them. The registry keeps their blobs until its garbage collection.
    """
    base = f"http://{lab.registry}/v2/{COLD}"
    tags = json.loads(_registry(f"{base}/tags/list") or "{}").get("tags") or []
    for tag in tags:
        with contextlib.suppress(LabError):  # the tag of a removed image
            digest = Pusher(lab.registry).digest(COLD, tag)
            with contextlib.suppress(LabError):  # the node has not pulled it
                remove_image(lab, f"{lab.registry}/{COLD}@{digest}")
            _registry(f"{base}/manifests/{digest}", "DELETE")


def _registry(url: str, method: str = "GET") -> bytes:
    """Return the registry's answer; empty if the registry does not have the object."""
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT}, method=method)  # noqa: S310
    try:
        with opened(request, timeout=30) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return b""
        raise LabError(f"the registry answers {error.code} to {method} {url}") from error


def compile_work() -> bytes:
    """Compile and return the static program that the jobs run. Raises LabError."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "work"
        options = ["-std=c11", "-D_GNU_SOURCE", "-static", "-O2", "-s"]
        run(["musl-gcc", *options, "-o", program, SOURCE], what=f"compile {SOURCE}")
        return program.read_bytes()


def _image() -> OciImage:
    return OciImage((shell(), layer(Entry("bin/work", data=compile_work()))))


def size(reference: str) -> int:
    """Return the bytes of an image's layers in the registry, by `host:port/name:tag`; the lab's are not compressed."""
    address, _, rest = reference.partition("/")
    name, _, tag = rest.partition("@")[0].rpartition(":")
    manifest = _registry(f"http://{address}/v2/{name}/manifests/{tag}")
    if not manifest:
        raise LabError(f"the registry has no image {reference}")
    return size_of(json.loads(manifest))


def size_of(manifest: dict[str, Any]) -> int:
    """Return the bytes of an image's layers, from its manifest."""
    return sum(int(layer["size"]) for layer in manifest["layers"])
