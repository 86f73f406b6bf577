"""A client that sends what it likes, and an engine that has to be none the worse for it."""

import asyncio
import ctypes
import gc
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from tests.engine.rings import Simulated, eventually

MIB = 1024 * 1024
CREATE = "/containers/create?name=bad"
HEAD = f"POST {CREATE} HTTP/1.1\r\nHost: docker\r\n".encode()


def descriptors() -> int:
    """Return the number of file descriptors that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    """Return the resident memory of this process, with the engine in it, without free memory that malloc(3) keeps."""
    ctypes.CDLL(None).malloc_trim(0)
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
    """Send a request that may have no end, and return the engine's answer once the engine hangs up."""
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
