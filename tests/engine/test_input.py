"""Standard input of a job, and jobs with a terminal."""

import asyncio
from contextlib import suppress
from typing import Any

from tests.engine.client import Attachment, Job
from tests.engine.rings import Engine

READS: dict[str, Any] = {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True}


async def _begin(engine: Engine, *command: str, sent: bytes | None = None, **options: Any) -> tuple[Attachment, Job]:
    """As `docker start -a -i` does it."""
    name = await engine.create(engine.image("busybox"), *command, **{**READS, **options})
    attached = await engine.attach(name, stdin=True)
    if sent is not None:
        await attached.write(sent)
        attached.end_input()
    waiting = await engine.begin_wait(name)
    await engine.call("POST", f"/containers/{name}/start")
    return attached, Job(engine, name, attached, waiting)


async def test_a_job_reads_what_is_sent_before_it_starts(engine: Engine) -> None:
    _, job = await _begin(engine, "sort", sent=b"b\na\nc\n")
    assert (await job.result()).stdout == b"a\nb\nc\n"


async def test_a_job_reads_while_it_runs(engine: Engine) -> None:
    attached, job = await _begin(
        engine, "sh", "-c", "read first; echo got $first; read second; echo got $second; exit 6"
    )
    await attached.write(b"one\n")
    await job.until_output(b"got one\n")
    await attached.write(b"two\n")
    result = await job.result()
    assert (result.code, result.stdout) == (6, b"got two\n")


async def test_much_input_arrives_as_it_was(engine: Engine) -> None:
    attached, job = await _begin(engine, "md5sum")
    piece = bytes(range(256)) * 256
    for _ in range(400):
        await attached.write(piece)
    attached.end_input()
    expected = await asyncio.to_thread(_md5, piece * 400)
    assert (await job.result()).stdout.split()[0].decode() == expected


def _md5(data: bytes) -> str:
    import hashlib  # noqa: PLC0415

    return hashlib.md5(data).hexdigest()  # noqa: S324 -- busybox's, to compare


async def test_a_job_that_does_not_read_its_input_ends_all_the_same(engine: Engine) -> None:
    attached, job = await _begin(engine, "sh", "-c", "exit 5")
    reading = asyncio.ensure_future(job.result())
    with suppress(ConnectionError):  # closed at the end of the result
        while not reading.done():
            await attached.write(b"x" * 65536)
            await asyncio.sleep(0)
    assert (await reading).code == 5


async def test_without_an_input_a_job_is_at_its_end_at_once(engine: Engine) -> None:
    assert (await engine.shell(engine.image("busybox"), "cat; echo end")).stdout == b"end\n"


async def test_a_job_with_a_terminal_has_one_stream_and_a_size(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", **{**READS, "Tty": True})
    attached = await engine.attach(name, stdin=True)
    await engine.call("POST", f"/containers/{name}/resize", params={"h": "20", "w": "90"})
    await engine.call("POST", f"/containers/{name}/start")
    await attached.write(b"stty size; echo err''or >&2; exit 4\n")
    output = await attached.until(b"error")
    assert b"20 90" in output
    await attached.reader.read()
    assert (await engine.inspect(name))["State"]["ExitCode"] == 4
