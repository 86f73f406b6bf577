"""A registry that holds whoever asks it, asked by the real skopeo: bounded in time, number and bytes."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from k8spilot.common.aio import close_server
from k8spilot.common.errors import ImageError, ImageNotNow, RegistryUnreachable
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.image_lookup import ImageLookup
from k8spilot.registry import skopeo
from k8spilot.registry.skopeo import Registry
from tests.engine.rings import eventually
from tests.unit.test_registry_skopeo import registry as answered_by

REFERENCE = Reference.parse("registry.test/a:1")
WAITING = "the headers never come"
DRIBBLING = "the body comes byte by byte"
ENDLESS = "the body has no end"

pytestmark = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not there")


@asynccontextmanager
async def tarpit(folder: Path, how: str) -> AsyncIterator[tuple[Registry, Reference]]:
    """A registry on the loopback, a skopeo that takes it for one without TLS, and an image."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (first := await reader.readexactly(1)) != b"\x16":  # of TLS, which skopeo tries before
                head = first + await reader.readuntil(b"\r\n\r\n")
                if re.match(rb"GET /v2/ ", head):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                if how == WAITING:
                    await asyncio.sleep(3600)
                kind = b"application/vnd.oci.image.manifest.v1+json"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n\r\n")
                while True:
                    writer.write(b" " * (1 if how == DRIBBLING else 65536))
                    await writer.drain()
                    await asyncio.sleep(0.05 if how == DRIBBLING else 0)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    registries = folder / "registries.conf"
    registries.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    program = folder / "skopeo"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("skopeo")} --registries-conf {registries} "$@"\n')
    program.chmod(0o755)
    try:
        yield Registry(None, str(program)), Reference.parse(f"{address}/a:1")
    finally:
        await close_server(server)
        server.abort_clients()  # a server waits for them, and one that waits itself does not see its client's end


def clients() -> list[int]:
    """Process ids of this process's skopeos."""
    return [one.pid for one in psutil.Process(os.getpid()).children() if one.name() == "skopeo"]


async def are(count: int) -> bool:
    return len(clients()) == count


@pytest.mark.slow
@pytest.mark.parametrize("how", [WAITING, DRIBBLING])
async def test_a_look_up_ends_in_time_and_its_job_goes_back_to_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(skopeo, "_QUERY_SECONDS", 1.0)
    async with tarpit(tmp_path, how) as (asked, reference):
        with pytest.raises(RegistryUnreachable, match=r"did not answer within 1 s$"):
            await asked.digest(reference)
        assert clients() == []
        began = time.monotonic()
        with pytest.raises(ImageNotNow, match=r"was not available within 2 s; the job is not at fault: ") as error:
            await ImageLookup(asked, ImagePolicy(), 2.0).find(reference)
        assert error.value.scope == "registry"
        assert time.monotonic() - began < 5
        assert clients() == []


async def test_an_answer_without_end_holds_the_job_and_takes_no_memory(tmp_path: Path) -> None:
    before = psutil.Process().memory_info().rss
    async with tarpit(tmp_path, ENDLESS) as (asked, reference):
        with pytest.raises((ImageError, RegistryUnreachable)) as refused:
            await asked.digest(reference)
    assert "exceeded maximum allowed size" in str(refused.value)
    assert isinstance(refused.value, ImageError)
    assert psutil.Process().memory_info().rss - before < 64 * 1024 * 1024


async def test_one_client_asks_at_a_time_and_is_ended_when_the_job_is_removed(tmp_path: Path) -> None:
    async with tarpit(tmp_path, DRIBBLING) as (asked, reference):
        looking = asyncio.create_task(ImageLookup(asked, ImagePolicy(), 60.0).find(reference))
        await eventually(lambda: are(1))
        await asyncio.sleep(0.5)
        assert len(clients()) == 1
        looking.cancel()
        await asyncio.wait([looking], timeout=2)
        assert looking.cancelled()
        assert clients() == []


async def test_whatever_the_client_says_little_of_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImageError, match=r"image registry\.test/a:1 has more than 8 MiB$"):
        await answered_by(tmp_path, "head -c 100000000 /dev/zero").digest(REFERENCE)
    words = answered_by(tmp_path, "head -c 100000000 /dev/zero | tr '\\0' x >&2; exit 1")
    with pytest.raises(RegistryUnreachable) as failed:
        await words.digest(REFERENCE)
    assert len(str(failed.value)) < 500
    monkeypatch.setattr(skopeo, "_QUERY_SECONDS", 1.0)
    with pytest.raises(RegistryUnreachable, match="did not answer within"):
        await answered_by(tmp_path, "exec yes >&2").digest(REFERENCE)


async def test_a_document_as_large_as_clients_read_is_read(tmp_path: Path) -> None:
    configuration = json.dumps({"architecture": "amd64", "rootfs": {}, "config": {}, "x": "y" * 4_000_000})
    digest = f"sha256:{hashlib.sha256(configuration.encode()).hexdigest()}"
    (tmp_path / "configuration").write_text(configuration)
    (tmp_path / "manifest").write_text(json.dumps({"schemaVersion": 2, "config": {"digest": digest}}))
    asked = answered_by(tmp_path, f"cd {tmp_path}; case $* in *--config*) cat configuration;; *) cat manifest;; esac")
    assert (await asked.image(REFERENCE, await asked.digest(REFERENCE))).identifier == digest
