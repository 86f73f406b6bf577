"""docker logs: the end of the output, kept for people."""

import asyncio
import struct
import time

import pytest

from tests.engine.rings import Engine

BOTH = {"stdout": "1", "stderr": "1"}


def frames(body: bytes) -> list[tuple[int, bytes]]:
    """The frames of a multiplexed stream."""
    found, at = [], 0
    while at < len(body):
        stream, length = struct.unpack_from(">BxxxI", body, at)
        found.append((stream, body[at + 8 : at + 8 + length]))
        at += 8 + length
    return found


async def test_logs_are_there_after_the_end_though_nobody_was_attached(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "echo out; echo err >&2")
    await engine.call("POST", f"/containers/{name}/start")
    await engine.call("POST", f"/containers/{name}/wait")
    body = (await engine.call("GET", f"/containers/{name}/logs", params=BOTH)).body
    assert sorted(frames(body)) == [(1, b"out\n"), (2, b"err\n")]
    only = (await engine.call("GET", f"/containers/{name}/logs", params={"stderr": "1"})).body
    assert frames(only) == [(2, b"err\n")]


async def test_tail_and_timestamps(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "for i in 1 2 3 4; do echo $i; done")
    await job.result()
    path = f"/containers/{job.name}/logs"
    last = await engine.call("GET", path, params={"stdout": "1", "tail": "2"})
    assert b"".join(data for _, data in frames(last.body)) == b"3\n4\n"
    stamped = await engine.call("GET", path, params={"stdout": "1", "tail": "1", "timestamps": "1"})
    assert frames(stamped.body)[0][1].split(b" ")[1] == b"4\n"


async def test_following_ends_with_the_job(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "echo first; sleep 0.3; echo second")
    await job.until_output(b"first")
    following = engine.call("GET", f"/containers/{job.name}/logs", params={**BOTH, "follow": "1"})
    answer, _ = await asyncio.gather(following, job.result())
    assert b"".join(data for _, data in frames(answer.body)) == b"first\nsecond\n"


@pytest.mark.slow
async def test_only_the_last_mebibyte_is_kept(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "yes | head -c 3000000; echo end")
    await job.result()
    began = time.process_time()
    answer = await engine.call("GET", f"/containers/{job.name}/logs", params=BOTH)
    assert time.process_time() - began < 4  # a write for each of half a million lines takes 20
    body = b"".join(data for _, data in frames(answer.body))
    assert body.endswith(b"y\nend\n")
    assert 500_000 < len(body) <= 1024 * 1024


async def test_what_cannot_be_meant_is_refused(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    path = f"/containers/{name}/logs"
    assert (await engine.ask("GET", path)).status == 400
    assert (await engine.ask("GET", path, params={**BOTH, "tail": "x"})).status == 400
