"""However much is asked for, the engine gives so much and no more."""

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest

from k8spilot.common.http_limits import LimitedRequestHandler
from k8spilot.docker import server, store
from tests.engine.bad_clients.client import (
    MIB,
    Crowd,
    answered,
    body,
    descriptors,
    message,
    resident,
    status,
    unharmed,
)
from tests.engine.client import Attachment
from tests.engine.rings import Simulated, eventually


@pytest.mark.slow
async def test_who_does_not_read_an_answer_is_hung_up_on(simulator: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedRequestHandler, "READING_SECONDS", 3.0)
    async with unharmed(simulator):
        asked = {"Image": simulator.image("busybox"), "Cmd": ["true"], "Env": ["A=" + "a" * (5 * MIB)]}
        answer = await answered(simulator, body(json.dumps(asked).encode()))
        assert status(answer) == 201
        name = "bad"
        before = resident()
        silent = Crowd(simulator)
        for _ in range(60):
            await silent.join(f"GET /containers/{name}/json HTTP/1.1\r\nHost: docker\r\n\r\n".encode())
        assert resident() - before < 2 * store._MEMORY_BYTES, "60 answers of 5 MB each are kept"

        async def alone() -> bool:
            return (await simulator.ask("GET", "/_ping")).status == 200 and not any(
                _alive(one) for one in silent.members
            )

        await eventually(alone)
        silent.leave()
        await simulator.remove(name)


def _alive(client: socket.socket) -> bool:
    """Whether the other end is still there, without reading what it has sent."""
    try:
        client.send(b"G", socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


@pytest.mark.slow
async def test_more_connections_than_one_user_has_end_those_that_wait(simulator: Simulated) -> None:
    async with unharmed(simulator):
        before = descriptors()
        crowd = Crowd(simulator)
        for _ in range(server._OF_ONE_USER * 3):
            await crowd.join()
        assert (await simulator.ask("GET", "/_ping")).status == 200

        async def few() -> bool:
            ours = len(crowd.members)
            return descriptors() - before - ours <= server._OF_ONE_USER + 1

        await eventually(few)
        crowd.leave()


@pytest.mark.slow
async def test_more_requests_than_one_user_may_have_are_told_so(simulator: Simulated) -> None:
    async with unharmed(simulator):
        job = await simulator.begin(simulator.image("busybox"), "sleep", "600")
        request = f"POST /containers/{job.name}/wait HTTP/1.1\r\nHost: docker\r\n\r\n".encode()
        crowd = Crowd(simulator)
        for _ in range(server._OF_ONE_USER):
            await crowd.join(request)
        await asyncio.sleep(0.3)
        answer = await answered(simulator, request)
        assert status(answer) == 503
        assert "too many connections" in message(answer)
        assert await _status_as(65534, simulator.path) == 200  # there is room for another user
        crowd.leave()
        await asyncio.sleep(0.3)
        await job.kill("KILL")
        await job.result()
        await simulator.remove(job.name)


async def _status_as(uid: int, path: Path) -> int:
    """The status that a process of another user gets from a ping."""
    script = (
        "import os,socket,sys; s=socket.socket(socket.AF_UNIX); os.chdir(sys.argv[1]); "
        f"os.setgroups([]); os.setresgid(0,0,0); os.setresuid({uid},{uid},0); s.connect('docker.sock'); "
        "s.sendall(b'GET /_ping HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n'); "
        "print(s.recv(99).split()[1].decode())"
    )
    path.chmod(0o666)
    process = await asyncio.create_subprocess_exec("python3", "-c", script, path.parent, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return int(output)


@pytest.mark.slow
async def test_requests_together_may_take_so_much_memory_and_no_more(simulator: Simulated) -> None:
    large = body(b'{"Image":"' + b"a" * (12 * MIB) + b'"')[:-1]  # all but the end
    async with unharmed(simulator):
        before = resident()
        crowd = Crowd(simulator)
        await asyncio.gather(*(crowd.join(large) for _ in range(20)))
        await asyncio.sleep(0.5)
        small = await answered(simulator, body(b'{"Image":""}'))
        assert status(small) in (409, 503), "it is answered, at the least"
        assert resident() - before < 2 * store._MEMORY_BYTES
        crowd.leave()

        async def all_given_back() -> bool:
            return (await answered(simulator, body(b'{"Image":"' + b"a" * (12 * MIB) + b'"}')))[9:12] == b"500"

        await eventually(all_given_back)


@pytest.mark.slow
async def test_commands_that_are_never_started_take_so_much_memory_and_no_more(simulator: Simulated) -> None:
    async with unharmed(simulator):
        job = await simulator.begin(simulator.image("busybox"), "sleep", "600")
        before = resident()
        refused = 0
        for _ in range(60):
            asked = b'{"Cmd":["true"],"Env":["A=' + b"a" * (4 * MIB) + b'"]}'
            refused += status(await answered(simulator, body(asked, path=f"/containers/{job.name}/exec"))) == 503
        assert refused
        assert resident() - before < 2 * store._MEMORY_BYTES
        assert (await simulator.exec(job.name, "true")).code == 0 or refused
        await job.kill("KILL")
        await job.result()
        await simulator.remove(job.name)  # and all that was kept with it
        assert status(await answered(simulator, body(b'{"Image":"' + b"a" * (12 * MIB) + b'"}'))) == 500


async def test_there_are_so_many_containers_and_no_more(simulator: Simulated) -> None:
    engine = simulator.cluster.pilot
    assert engine is not None
    found = []
    for number in range(store._CONTAINERS + 1):
        creating = asyncio.create_task(
            simulator.ask("POST", "/containers/create", {"Image": simulator.image("busybox"), "Cmd": ["true"]},
                          {"name": f"by-hand-{number}"})
        )  # fmt: skip
        while not creating.done():
            await simulator.ask("POST", f"/containers/by-hand-{number}/kill", params={"signal": "KILL"})
        found.append(creating.result().status)
    assert found[-1] == 409
    await simulator.remove_all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        b"GET /_ping HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /_ping HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nUpgrade: tcp\r\n\r\n",
        b"POST /containers/nobody/attach HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        b"POST /exec/nobody/start HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"CONNECT /_ping HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
async def test_an_upgrade_that_is_none_ends_in_an_answer_whatever_follows(simulator: Simulated, head: bytes) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, head + os.urandom(200_000), ends=True)
        assert answer == b"" or 200 <= status(answer) < 600
        assert status(await answered(simulator, body(b'{"Image":""}'))) == 409


@pytest.mark.slow
async def test_an_attached_client_that_sends_without_end_takes_no_memory(simulator: Simulated) -> None:
    async with unharmed(simulator):
        job = await simulator.begin(simulator.image("busybox"), "sleep", "600")
        before = resident()
        late = await simulator.attach(job.name, stdin=True)
        sending = asyncio.create_task(_without_end(late))
        await asyncio.sleep(2)
        assert not sending.done()
        sending.cancel()
        assert resident() - before < 30 * MIB
        late.abort()
        await job.kill("KILL")
        await job.result()
        await simulator.remove(job.name)


async def _without_end(attached: Attachment) -> None:
    while True:
        await attached.write(bytes(MIB))
