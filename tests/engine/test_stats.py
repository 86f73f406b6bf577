"""Usage, in the layout that HTCondor looks for it with sscanf, over HTTP/1.0 without a Host."""

import json
import re

import psutil

from tests.engine.rings import Engine, Simulated

BUSY = "echo ready; i=0; while :; do i=$((i+1)); done"


def split(answer: bytes) -> tuple[str, str]:
    """Head and body of a raw response."""
    head, body = answer.decode().split("\r\n\r\n", 1)
    return head, body


def first(name: str, body: str) -> int:
    """The figure that HTCondor takes: the first, directly after the quote and a colon."""
    match = re.search(rf'"{name}":(\d+)', body)
    assert match is not None, f"{name} is not in {body}"
    return int(match[1])


async def test_stats_come_as_htcondor_reads_them(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), BUSY)
    await job.until_output(b"ready")
    head, body = split(await engine.raw(f"GET /containers/{job.name}/stats?stream=0 HTTP/1.0\r\n\r\n".encode()))
    assert head.startswith("HTTP/1.0 200 ")
    assert "chunked" not in head.lower()
    assert json.loads(body)["name"] == f"/{job.name}"
    assert body.index('"cpu_stats"') < body.index('"precpu_stats"')
    assert body.index('"rss"') < body.rindex('"usage"')
    assert '": ' not in body
    for name in ("rss", "usage_in_usermode", "usage_in_kernelmode", "rx_bytes", "tx_bytes"):
        first(name, body)
    await job.kill("KILL")
    await job.result()


async def test_cpu_and_memory_are_the_jobs(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "x=$(dd if=/dev/zero bs=1M count=16 | tr '\\0' x); " + BUSY)
    await job.until_output(b"ready")
    figures = []
    for _ in range(2):
        _, body = split(await engine.raw(f"GET /containers/{job.name}/stats?stream=0 HTTP/1.0\r\n\r\n".encode()))
        figures.append((first("usage_in_usermode", body), first("rss", body)))
    assert figures[0][0] <= figures[1][0] < 60e9
    assert 1 << 20 < figures[1][1] < 1 << 30


async def test_the_last_figures_stay_after_the_end(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "exit 0")
    await job.result()
    _, body = split(await simulator.raw(f"GET /containers/{job.name}/stats?stream=0 HTTP/1.0\r\n\r\n".encode()))
    assert first("usage_in_usermode", body) == 1_500_000_000
    assert first("usage_in_kernelmode", body) == 500_000_000
    assert first("rss", body) == 9 << 20


async def test_the_memory_limit_is_the_containers(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), BUSY)
    await job.until_output(b"ready")
    _, body = split(await engine.raw(f"GET /containers/{job.name}/stats?stream=0 HTTP/1.0\r\n\r\n".encode()))
    assert first("usage", body) < first("limit", body) < psutil.virtual_memory().total / 2


async def test_inspect_over_http_1_0_closes_the_connection(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    head, body = split(await engine.raw(f"GET /containers/{name}/json HTTP/1.0\r\n\r\n".encode()))
    assert "chunked" not in head.lower()
    assert json.loads(body)["NetworkSettings"]["Ports"] == {}


async def test_stats_of_a_created_container_are_refused(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    assert (await engine.ask("GET", f"/containers/{name}/stats", params={"stream": "0"})).status == 409
