"""Clients that mean no good: what they get, and that the next one is served as if they had never been."""

import asyncio
import gc
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from k8spilot.connections import Guarded
from k8spilot.docker import answers, server, state
from tests.engine.client import Attachment
from tests.engine.rings import Simulated, eventually

MIB = 1024 * 1024
CREATE = "/containers/create?name=bad"
HEAD = f"POST {CREATE} HTTP/1.1\r\nHost: docker\r\n".encode()


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    """What this process, with the engine in it, has of the memory."""
    return int(psutil.Process().memory_info().rss)


@asynccontextmanager
async def unharmed(engine: Simulated) -> AsyncIterator[None]:
    """At the end the engine runs a job, and has no more descriptors and tasks than after one before."""
    await engine.shell(engine.image("busybox"), "true")
    files, tasks = descriptors(), len(asyncio.all_tasks())
    yield
    gc.collect()
    assert (await engine.shell(engine.image("busybox"), "echo served")).stdout == b"served\n"

    async def as_before() -> bool:
        return descriptors() <= files and len(asyncio.all_tasks()) <= tasks

    await eventually(as_before, 60)


async def answered(engine: Simulated, request: bytes, *, ends: bool = False) -> bytes:
    """What the engine says to a request that may never come to its end, until it hangs up."""
    loop, answer = asyncio.get_running_loop(), b""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        client.connect(str(engine.path))
        async with asyncio.timeout(60):
            sending = asyncio.create_task(loop.sock_sendall(client, request))
            try:
                if ends:
                    with suppress(ConnectionError):
                        await sending
                    client.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    while data := await loop.sock_recv(client, 65536):
                        answer += data
            finally:
                sending.cancel()
                with suppress(ConnectionError, asyncio.CancelledError):
                    await sending
    return answer


class Crowd:
    """Clients that send something and read nothing."""

    def __init__(self, engine: Simulated) -> None:
        self._path = str(engine.path)
        self.members: list[socket.socket] = []

    async def join(self, request: bytes = b"") -> None:
        """One more; what it cannot send at once it does not send."""
        one = socket.socket(socket.AF_UNIX)
        one.connect(self._path)
        one.setblocking(False)
        self.members.append(one)
        rest = memoryview(request)
        for _ in range(200):
            with suppress(OSError):
                while rest:
                    rest = rest[one.send(rest) :]
            await asyncio.sleep(0.005)
            if not rest:
                return

    def leave(self) -> None:
        """All hang up."""
        while self.members:
            self.members.pop().close()


def body(content: bytes, more: str = "", path: str = CREATE) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: docker\r\nContent-Length: {len(content)}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + content


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def message(answer: bytes) -> str:
    """The one sentence of an error."""
    text = str(json.loads(answer.partition(b"\r\n\r\n")[2])["message"])
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999999999999\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /containers/create HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: a\r\n" % one for one in range(1000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX\x00Y: a\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_one_sentence(simulator: Simulated, request_: bytes) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, request_)
        assert status(answer) == 400
        assert message(answer).startswith("the request cannot be read (")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b'{"Image":"\xff\xfe"}', "not JSON"),
        (b'{"Image":"a\\ud800"}', "not JSON"),
        (b'{"HostConfig":{"ShmSize":' + b"9" * 5000 + b"}}", "not JSON"),
        (b'{"HostConfig":{"ShmSize":NaN}}', "not JSON"),
        (b"[" + b"[]," * 1_000_000 + b"[]]", "too many values"),
        (b"\x1f\x8b" + bytes(100), "not JSON"),
        (b'{"Image":"a","Cmd":{"a":1}}', "the docker option Cmd is to be a list of texts"),
        (b'{"Image":"a","Cmd":[[]]}', "the docker option Cmd"),
        (b'{"Image":1}', "the docker option Image"),
        (b'{"Image":"a","HostConfig":[1]}', "the docker option HostConfig"),
        (b'{"Image":"a","HostConfig":{"Mounts":5}}', "the docker option Mounts"),
        (b'{"Image":"a","HostConfig":{"ShmSize":1e999}}', "the docker option ShmSize"),
        (b'{"Image":"a","HostConfig":{"ShmSize":-9}}', "the docker option ShmSize"),
        (b'{"Image":"a","HostConfig":{"PortBindings":{"80":[3]}}}', "the docker option PortBindings"),
        (b'{"Image":"a","HostConfig":{"RestartPolicy":[3]}}', "the docker option RestartPolicy"),
        (b'{"Image":"a","Labels":{"org.htcondorproject":["True"]}}', "the docker option Labels"),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_in_one_sentence(
    simulator: Simulated, content: bytes, words: str
) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, body(content))
        assert 400 <= status(answer) < 500
        assert words in message(answer)


async def test_a_body_that_says_it_is_too_large_is_not_read(simulator: Simulated) -> None:
    async with unharmed(simulator):
        before = resident()
        answer = await answered(simulator, body(b'{"Image":"' + b"a" * (40 * MIB)))
        assert status(answer) == 413
        assert resident() - before < 60 * MIB  # this side has all of it in memory


async def test_a_compressed_body_is_not_unpacked(simulator: Simulated) -> None:
    import zlib  # noqa: PLC0415

    bomb = zlib.compress(bytes(200 * MIB), 9)
    async with unharmed(simulator):
        before = resident()
        answer = await answered(simulator, body(bomb, "Content-Encoding: deflate\r\n"))
        assert status(answer) == 400
        assert resident() - before < 30 * MIB


@pytest.mark.parametrize("request_", [b"", b"GET /_p", b"GET /_ping HTTP/1.1\r\nHost: docker\r\nX: "])
async def test_who_does_not_finish_a_request_is_hung_up_on(
    simulator: Simulated, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guarded, "HEAD_SECONDS", 0.3)
    async with unharmed(simulator):
        answer = await answered(simulator, request_)
        assert status(answer) == 408
        assert message(answer) == "the request did not come to its end in time"


async def test_a_header_byte_by_byte_is_too_slow(simulator: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guarded, "HEAD_SECONDS", 0.5)
    async with unharmed(simulator):
        reader, writer = await asyncio.open_unix_connection(str(simulator.path))
        # The request before it is served: the connection has nothing against it, only time has.
        writer.write(b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        sent, reading = 0, asyncio.create_task(reader.read())
        for byte in b"GET /_ping HTTP/1.1\r\nX: " + b"a" * 100:
            if reading.done():
                break
            writer.write(bytes([byte]))
            sent += 1
            await asyncio.sleep(0.05)
        assert sent < 30
        with suppress(ConnectionError):
            assert b"HTTP/1.1 408 " in await reading
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_body_that_does_not_come_is_not_waited_for(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_BODY_SECONDS", 0.3)
    async with unharmed(simulator):
        answer = await answered(simulator, HEAD + b"Content-Length: 100\r\n\r\n{", ends=False)
        assert status(answer) == 408
        assert "did not come within" in message(answer)


async def test_half_a_request_from_who_hangs_up_leaves_nothing(simulator: Simulated) -> None:
    async with unharmed(simulator):
        for part in (b"", b"GET", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{", HEAD + b"Upgrade: tcp\r\n"):
            for ends in (True, False):
                _, writer = await asyncio.open_unix_connection(str(simulator.path))
                writer.write(part)
                if ends:
                    writer.write_eof()
                await asyncio.sleep(0)
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()


async def test_who_does_not_read_an_answer_is_hung_up_on(simulator: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guarded, "READING_SECONDS", 3.0)
    async with unharmed(simulator):
        asked = {"Image": simulator.image("busybox"), "Cmd": ["true"], "Env": ["A=" + "a" * (5 * MIB)]}
        answer = await answered(simulator, body(json.dumps(asked).encode()))
        assert status(answer) == 201
        name = "bad"
        before = resident()
        silent = Crowd(simulator)
        for _ in range(60):
            await silent.join(f"GET /containers/{name}/json HTTP/1.1\r\nHost: docker\r\n\r\n".encode())
        assert resident() - before < 2 * state._MEMORY_BYTES, "60 answers of 5 MB each are kept"

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


async def test_requests_together_may_take_so_much_memory_and_no_more(simulator: Simulated) -> None:
    large = body(b'{"Image":"' + b"a" * (12 * MIB) + b'"')[:-1]  # all but the end
    async with unharmed(simulator):
        before = resident()
        crowd = Crowd(simulator)
        await asyncio.gather(*(crowd.join(large) for _ in range(20)))
        await asyncio.sleep(0.5)
        small = await answered(simulator, body(b'{"Image":""}'))
        assert status(small) in (409, 503), "it is answered, at the least"
        assert resident() - before < 2 * state._MEMORY_BYTES
        crowd.leave()

        async def all_given_back() -> bool:
            return (await answered(simulator, body(b'{"Image":"' + b"a" * (12 * MIB) + b'"}')))[9:12] == b"500"

        await eventually(all_given_back)


async def test_commands_that_are_never_started_take_so_much_memory_and_no_more(simulator: Simulated) -> None:
    async with unharmed(simulator):
        job = await simulator.begin(simulator.image("busybox"), "sleep", "600")
        before = resident()
        refused = 0
        for _ in range(60):
            asked = b'{"Cmd":["true"],"Env":["A=' + b"a" * (4 * MIB) + b'"]}'
            refused += status(await answered(simulator, body(asked, path=f"/containers/{job.name}/exec"))) == 503
        assert refused
        assert resident() - before < 2 * state._MEMORY_BYTES
        assert (await simulator.exec(job.name, "true")).code == 0 or refused
        await job.kill("KILL")
        await job.result()
        await simulator.remove(job.name)  # and all that was kept with it
        assert status(await answered(simulator, body(b'{"Image":"' + b"a" * (12 * MIB) + b'"}'))) == 500


async def test_there_are_so_many_containers_and_no_more(simulator: Simulated) -> None:
    engine = simulator.cluster.pilot
    assert engine is not None
    found = []
    for number in range(state._CONTAINERS + 1):
        creating = asyncio.create_task(
            simulator.ask("POST", "/containers/create", {"Image": simulator.image("busybox"), "Cmd": ["true"]},
                          {"name": f"by-hand-{number}"})
        )  # fmt: skip
        while not creating.done():
            await simulator.ask("POST", f"/containers/by-hand-{number}/kill", params={"signal": "KILL"})
        found.append(creating.result().status)
    assert found[-1] == 409
    await simulator.remove_all()


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


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/containers/a/kill?signal=" + "9" * 5000),
        ("GET", "/containers/json?filters=" + "%5B" * 2500),
        ("GET", "/containers/json?filters=%7B%22label%22:%22%5Cud800%22%7D"),
        ("GET", "/containers/json?filters=%7B%22label%22:1%7D"),
        ("GET", "/containers/%ff%00/json"),
        ("POST", "/images/create?fromImage=" + "a/" * 3000),
        ("DELETE", "/images/" + "%2e%2e%2f" * 100),
    ],
)
async def test_an_odd_address_is_answered(simulator: Simulated, method: str, path: str) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert status(answer) < 500


async def test_who_hangs_up_while_it_is_told_to_go_on_is_no_fault(simulator: Simulated) -> None:
    async with unharmed(simulator):
        crowd = Crowd(simulator)
        for _ in range(20):
            await crowd.join(b"POST /containers/create HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n" * 8)
            crowd.leave()


async def test_credentials_that_are_none_are_no_credentials(simulator: Simulated) -> None:
    import base64  # noqa: PLC0415

    async with unharmed(simulator):
        for header in (base64.urlsafe_b64encode(b"[" * 6000).decode(), "\xe9\xff", "a"):
            answer = await simulator.ask(
                "POST", "/images/create", params={"fromImage": "nowhere.test/a"}, headers={"X-Registry-Auth": header}
            )
            assert answer.status == 200


async def test_stop_for_a_time_that_is_no_number_is_refused(simulator: Simulated) -> None:
    async with unharmed(simulator):
        job = await simulator.begin(simulator.image("busybox"), "sleep", "600")
        assert (await simulator.ask("POST", f"/containers/{job.name}/stop", params={"t": "nan"})).status == 400
        await job.kill("KILL")
        await job.result()
        await simulator.remove(job.name)
