"""Runs inside the pilot container, with nothing but its Python: drives the engine as the docker CLI does.

Reads one word a line and answers each with one line of JSON: `job` runs an empty job and tells how long after the
payload's own last word /wait ended; `bind` binds an image and frees it; `requests` tells the API requests so far.
"""

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp

SOCKET = "/run/k8spilot/docker.sock"


async def create(session: aiohttp.ClientSession, image: str) -> str:
    """Create a container that prints the time; its id."""
    body = {"Image": image, "Cmd": ["date", "+%s.%N"], "Entrypoint": []}
    async with session.post("/containers/create", json=body) as answer:
        found = await answer.json()
        if answer.status != 201:
            raise SystemExit(f"create answered {answer.status}: {found}")
        return str(found["Id"])


async def remove(session: aiohttp.ClientSession, container: str) -> None:
    """Remove it."""
    async with session.delete(f"/containers/{container}?force=1"):
        pass


async def output(container: str) -> bytes:
    """What an attached client reads, frames and all, until the end."""
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    headers = "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n"
    writer.write(f"POST /containers/{container}/attach?stdout=1&stream=1 HTTP/1.1\r\n{headers}\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    data = await reader.read()
    writer.close()
    return data


async def job(session: aiohttp.ClientSession, image: str) -> float:
    """One empty job; seconds from its own last word to the end of /wait."""
    container = await create(session, image)
    attached = asyncio.ensure_future(output(container))
    await asyncio.sleep(0.05)  # the CLI attaches before it starts, too
    async with session.post(f"/containers/{container}/wait?condition=next-exit") as waiting:
        async with session.post(f"/containers/{container}/start"):
            pass
        await waiting.read()
        told = time.time()
    said = float((await attached)[8:])
    await remove(session, container)
    return told - said


async def bind(session: aiohttp.ClientSession, image: str) -> float:
    """Bind and free; seconds that the client waited."""
    began = time.monotonic()
    container = await create(session, image)
    seconds = time.monotonic() - began
    await remove(session, container)
    return seconds


async def requests(session: aiohttp.ClientSession) -> int:
    """API requests that the pilot has made."""
    async with session.get("/info") as answer:
        labels = (await answer.json())["Labels"]
    return int(labels[0].partition("=")[2])


async def main() -> None:
    """Answer line by line until the end of the input."""
    async with aiohttp.ClientSession("http://docker", connector=aiohttp.UnixConnector(SOCKET)) as session:
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, _, image = line.strip().partition(" ")
            found: Any = None
            if word == "job":
                found = await job(session, image)
            elif word == "bind":
                found = await bind(session, image)
            elif word == "requests":
                found = await requests(session)
            print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
