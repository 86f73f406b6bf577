"""A small client of the Docker Engine API, in the order of calls that the docker CLI has."""

import asyncio
import itertools
import json
import os
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from lab.patience import scaled

VERSION: Final = "/v1.45"
SECONDS: Final = scaled(60.0)
"""For any single step; nothing here takes nearly as long."""
_HEADER: Final = struct.Struct(">BxxxI")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """A response, read to its end."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """The sentence in an error."""
        return str(self.json["message"])


class Failed(Exception):
    """A call was answered with an error."""

    def __init__(self, what: str, answer: Answer) -> None:
        super().__init__(f"{what}: {answer.status} {answer.body[:400]!r}")
        self.answer = answer


@dataclass(frozen=True)
class Result:
    """Result of a run, as `docker start -a` gets it."""

    code: int
    stdout: bytes
    stderr: bytes
    error: str
    """The text of wait's Error; empty when the code is the job's own."""


class Attachment:
    """An attached connection: frames of output."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def frame(self) -> tuple[int, bytes] | None:
        """The next frame, or None at the end."""
        try:
            stream, length = _HEADER.unpack(await self.reader.readexactly(_HEADER.size))
        except asyncio.IncompleteReadError as error:
            if error.partial:  # within a frame's header
                raise
            return None
        return stream, await self.reader.readexactly(length)

    async def output(self) -> tuple[bytes, bytes]:
        """All that is left: stdout and stderr."""
        parts: dict[int, list[bytes]] = {1: [], 2: []}
        while (found := await self.frame()) is not None:
            parts[found[0]].append(found[1])
        return b"".join(parts[1]), b"".join(parts[2])

    async def write(self, data: bytes) -> None:
        """Send input."""
        self._writer.write(data)
        await self._writer.drain()

    def end_input(self) -> None:
        """Send no more, and go on to read."""
        self._writer.write_eof()

    async def until(self, wanted: bytes) -> bytes:
        """Read a terminal's output until it has `wanted`; what was read."""
        read = b""
        async with asyncio.timeout(SECONDS):
            while wanted not in read:
                data = await self.reader.read(65536)
                assert data, f"the output ended without {wanted!r}: {read!r}"
                read += data
        return read

    def abort(self) -> None:
        """Hang up at once, whatever is on its way."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Job:
    """A container that has been started as `docker start -a` does."""

    def __init__(self, client: "Client", name: str, attached: Attachment, waiting: "asyncio.Task[Answer]") -> None:
        self._client = client
        self.name = name
        self.attached = attached
        self.waiting = waiting

    async def result(self) -> Result:
        """Read to the end."""
        async with asyncio.timeout(SECONDS):
            stdout, stderr = await self.attached.output()
            answer = (await self.waiting).json
        await self.attached.close()
        return Result(answer["StatusCode"], stdout, stderr, (answer.get("Error") or {}).get("Message", ""))

    async def kill(self, signal: str) -> None:
        """`docker kill --signal`."""
        await self._client.call("POST", f"/containers/{self.name}/kill", params={"signal": signal})

    async def until_output(self, wanted: bytes) -> bytes:
        """Read stdout until it has `wanted`; what was read."""
        read = b""
        async with asyncio.timeout(SECONDS):
            while wanted not in read:
                found = await self.attached.frame()
                assert found is not None, f"the output ended without {wanted!r}: {read!r}"
                read += found[1] if found[0] == 1 else b""
        return read


class Client:
    """Speaks to the engine on a unix socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._session: aiohttp.ClientSession | None = None
        self._attached: list[Attachment] = []

    async def __aenter__(self) -> Self:
        """Open the session."""
        connector = aiohttp.UnixConnector(str(self.path), limit=0)
        timeout = aiohttp.ClientTimeout(total=SECONDS * 2)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it, and what is still attached."""
        assert self._session is not None
        await self._session.close()
        for attached in self._attached:
            await attached.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        version: str = VERSION,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Make a request and read its answer, whatever it is."""
        assert self._session is not None
        url = f"http://docker{version}{path}"
        async with self._session.request(method, url, json=body, params=params, headers=headers) as response:
            return Answer(response.status, await response.read(), response.headers)

    async def call(self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None) -> Answer:
        """As `ask`, for what has to go well.

        Raises:
            Failed: it does not.
        """
        answer = await self.ask(method, path, body, params)
        if answer.status >= 300:
            raise Failed(f"{method} {path}", answer)
        return answer

    async def pull(self, image: str) -> list[dict[str, Any]]:
        """`docker pull`: the lines of the stream."""
        name, _, tag = image.partition("@") if "@" in image else image.rpartition(":")
        answer = await self.call("POST", "/images/create", params={"fromImage": name, "tag": tag})
        return [json.loads(line) for line in answer.body.splitlines()]

    async def create(self, image: str, *command: str, name: str = "", **options: Any) -> str:
        """`docker create`; the container's name. `options` are keys of the body or, as a dict, HostConfig."""
        name = name or unique_name()
        body = {"Image": image, "Cmd": list(command) or None, "AttachStdout": True, "AttachStderr": True, **options}
        await self.call("POST", "/containers/create", body, {"name": name})
        return name

    async def attach(self, name: str, *, stdin: bool = False) -> Attachment:
        """POST attach; returns when the connection has been taken over."""
        streams = "stream=1&stdout=1&stderr=1" + ("&stdin=1" if stdin else "")
        return await self.take_over(f"/containers/{name}/attach?{streams}")

    async def take_over(self, path: str, body: Any = None) -> Attachment:
        """POST what takes the connection over; returns when it has."""
        reader, writer = await asyncio.open_unix_connection(str(self.path), limit=256 * 1024)
        content = b"" if body is None else json.dumps(body).encode()
        request = (
            f"POST {VERSION}{path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        writer.write(request.encode() + content)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            length = int(head.lower().partition(b"content-length:")[2].split()[0])  # the connection stays open
            answer = Answer(int(head.split()[1]), await reader.readexactly(length), {})
            writer.close()
            raise Failed(f"POST {path}", answer)
        self._attached.append(Attachment(reader, writer))
        return self._attached[-1]

    async def begin_exec(self, name: str, *command: str, stdin: bool = False, **options: Any) -> tuple[str, Attachment]:
        """`docker exec`: its id and its streams."""
        body = {"Cmd": list(command), "AttachStdin": stdin, "AttachStdout": True, "AttachStderr": True, **options}
        identifier: str = (await self.call("POST", f"/containers/{name}/exec", body)).json["Id"]
        tty = bool(options.get("Tty"))
        return identifier, await self.take_over(f"/exec/{identifier}/start", {"Detach": False, "Tty": tty})

    async def exec(self, name: str, *command: str, **options: Any) -> Result:
        """`docker exec` to its end."""
        identifier, attached = await self.begin_exec(name, *command, **options)
        async with asyncio.timeout(SECONDS):
            stdout, stderr = await attached.output()
        found = (await self.call("GET", f"/exec/{identifier}/json")).json
        assert not found["Running"]
        return Result(found["ExitCode"], stdout, stderr, "")

    @asynccontextmanager
    async def _wait(self, name: str, condition: str) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None
        url = f"http://docker{VERSION}/containers/{name}/wait"
        async with self._session.post(url, params={"condition": condition}) as response:
            yield response

    async def begin_wait(self, name: str, condition: str = "next-exit") -> "asyncio.Task[Answer]":
        """POST wait; returns with its headers, a task for the rest."""
        begun = asyncio.Event()

        async def follow() -> Answer:
            async with self._wait(name, condition) as response:
                begun.set()
                return Answer(response.status, await response.read(), response.headers)

        task = asyncio.create_task(follow())
        async with asyncio.timeout(SECONDS):
            await begun.wait()
        return task

    async def start(self, name: str) -> Job:
        """`docker start -a`: attach, wait, start."""
        attached = await self.attach(name)
        waiting = await self.begin_wait(name)
        await self.call("POST", f"/containers/{name}/start")
        return Job(self, name, attached, waiting)

    async def begin(self, image: str, *command: str, name: str = "", **options: Any) -> Job:
        """Pull, create, start."""
        await self.pull(image)
        return await self.start(await self.create(image, *command, name=name, **options))

    async def run(self, image: str, *command: str, **options: Any) -> Result:
        """Pull, create, start, and remove at the end: one job of HTCondor's."""
        job = await self.begin(image, *command, **options)
        result = await job.result()
        await self.remove(job.name)
        return result

    async def shell(self, image: str, script: str, *arguments: str, **options: Any) -> Result:
        """Run a script of /bin/sh."""
        return await self.run(image, "sh", "-c", script, "sh", *arguments, **options)

    async def begin_shell(self, image: str, script: str, **options: Any) -> Job:
        """Start a script of /bin/sh."""
        return await self.begin(image, "sh", "-c", script, **options)

    async def begin_attack(self, image: str, attack: str, **options: Any) -> Job:
        """Start a job that runs `attack` once payload-init has reported its start."""
        wait = "trap told=1 USR1; echo ready; until [ $told ]; do sleep 0.1; done"
        job = await self.begin_shell(image, f"{wait}; {attack}", **options)
        await job.until_output(b"ready")
        await job.kill("USR1")
        return job

    async def begin_stopping(self, image: str, then: str = "exec sleep 60", **options: Any) -> Job:
        """Start a job that stops payload-init (SIGSTOP), ignores SIGTERM, and goes on with `then`."""
        job = await self.begin_attack(image, f"trap '' TERM; kill -STOP $PPID; echo stopped; {then}", **options)
        await job.until_output(b"stopped")
        return job

    async def inspect(self, name: str) -> dict[str, Any]:
        """`docker inspect` of a container."""
        found: dict[str, Any] = (await self.call("GET", f"/containers/{name}/json")).json
        return found

    async def remove(self, name: str) -> None:
        """`docker rm -f -v`."""
        await self.call("DELETE", f"/containers/{name}", params={"force": "1", "v": "1"})

    async def containers(self) -> list[dict[str, Any]]:
        """`docker ps -a`."""
        found: list[dict[str, Any]] = (await self.call("GET", "/containers/json", params={"all": "1"})).json
        return found

    async def remove_all(self) -> None:
        """Leave nothing for the next test."""
        for row in (await self.ask("GET", "/containers/json", params={"all": "1"})).json:
            await self.ask("DELETE", f"/containers/{row['Id']}", params={"force": "1"})

    async def raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and read until the engine closes the connection."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        writer.write(request)
        async with asyncio.timeout(SECONDS):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


def unique_name() -> str:
    """A name as HTCondor makes them."""
    return f"HTCJob{next(_numbers)}_0_slot1_PID{os.getpid()}"


def environment(variables: Mapping[str, str], removed: Sequence[str] = ()) -> list[str]:
    """The Env of a `docker create` with -e KEY=VALUE and -e KEY."""
    return [*(f"{key}={value}" for key, value in variables.items()), *removed]
