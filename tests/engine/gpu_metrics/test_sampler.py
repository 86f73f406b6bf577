"""Trust in the sampler: whose figures the engine believes, and for how long."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from k8spilot.gpu.monitoring import sampler_server
from k8spilot.gpu.monitoring.protocol import Hello
from k8spilot.gpu.monitoring.sampler_server import UID
from tests.engine.gpu_metrics.node import TWO, UUIDS, Node, eventually

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="samplers run under a uid of their own, for which it takes root"
)


async def test_a_sampler_that_falls_silent_is_noticed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_server, "_SILENT_SECONDS", 2.0)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        process = node.kubelet.processes["gpu-metrics-1"]
        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: not metrics.up, "it is noticed")
        assert metrics.meter is not None
        assert all(gpu.last is None for gpu in metrics.meter.now())
        process.send_signal(signal.SIGCONT)
        await eventually(lambda: metrics.up, "it goes on")
    assert node.containers() == ["gpu-metrics-1"]


async def test_who_reads_the_figures_goes_on_when_the_measuring_begins_again(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        assert metrics.meter is not None
        reader = metrics.meter.reader()
    async with node.measured(TWO, metrics):
        await eventually(lambda: metrics.up, "the sampler again")
        await eventually(lambda: [one for one in reader.read() if one.busy is not None], "figures")


def connected(folder: Path, uid: int = UID) -> socket.socket:
    """As a process of the sampler's container could."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(5)
    os.seteuid(uid)
    try:
        connection.connect(str(folder / "sampler.sock"))
    finally:
        os.seteuid(0)
    return connection


HELLO = {"hello": 1, "driver": "1", "devices": UUIDS, "fault": ""}
ONE = {"busy": 1.0, "known": 2.0, "memory": 1, "peak": 1, "total": 1, "processes": [], "fault": ""}


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"[]",
        {},
        {"seconds": 5.0, "fault": "", "devices": {"GPU-1\nSTART = True": ONE}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "busy": 3.0}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "known": 1e9, "busy": 1e9}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "memory": 2**62}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "memory": -1}}},
        {"seconds": 5.0, "fault": "", "devices": {UUIDS[0]: {**ONE, "more": 1}}},
        {"seconds": 5.0, "fault": "x" * 10_000, "devices": {}},
        b'{"seconds": NaN, "fault": "", "devices": {}}',
    ],
)
async def test_nonsense_is_not_believed_and_cuts_the_sampler_off(
    node: Node, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = node.metrics()
    listening = asyncio.Event()

    async def keep(*_: Any) -> None:
        listening.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(metrics, "_keep", keep)
    async with node.measured(TWO, metrics):
        await listening.wait()
        connection = connected(node.folder)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, json.dumps(HELLO).encode())
        assert await loop.sock_recv(connection, 16) == b"go"
        await loop.sock_sendall(connection, said if isinstance(said, bytes) else json.dumps(said).encode())
        assert await loop.sock_recv(connection, 16) == b""
        assert metrics.meter is not None
        assert all(gpu.known == 0 and gpu.last is None for gpu in metrics.meter.now())
        connection.close()


async def test_nobody_but_the_sampler_can_connect(node: Node) -> None:
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                connection.connect(str(node.folder / "sampler.sock"))
        finally:
            os.seteuid(0)
            connection.close()


async def test_an_engine_that_is_not_root_hears_the_sampler_and_nobody_else(node: Node) -> None:
    heard: list[int] = []

    def judge(_: Hello) -> bool:
        heard.append(1)
        return False

    node.folder.chmod(0o777)  # as the kubelet makes it
    listening = sampler_server.SamplerServer(node.folder, judge, lambda _: True, lambda: None)
    os.seteuid(64100)
    try:
        await listening.__aenter__()
    finally:
        os.seteuid(0)
    loop = asyncio.get_running_loop()
    for uid, says, answer in ((65534, b"", b""), (UID, json.dumps(HELLO).encode(), b"end")):
        connection = connected(node.folder, uid)
        connection.setblocking(False)
        if says:
            await loop.sock_sendall(connection, says)
        assert await loop.sock_recv(connection, 16) == answer
        connection.close()
    await listening.__aexit__(None, None, None)
    assert heard == [1]
