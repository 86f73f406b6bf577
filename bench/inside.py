"""Program that drives an engine as HTCondor's docker client does, in the pilot container or on dockerd's machine.

It can use Python and aiohttp only. The first argument is the engine's socket. Each line of input is a word and an
image; the answer is one line of JSON:

    job IMAGE    pull, create, attach, wait, start, remove; four moments, seconds since the epoch: when it was asked
                 for, the payload's first and last output, and when /wait returned
    bind IMAGE   create and remove; the seconds that the client waited for create
    requests     the requests that a pilot has made of the Kubernetes API so far
"""

import asyncio
import json
import re
import sys
import time
from typing import Any

import aiohttp

SOCKET = sys.argv[1] if len(sys.argv) > 1 else "/run/k8spilot/docker.sock"


async def pull(session: aiohttp.ClientSession, image: str) -> None:
    """Pull an image; return at the end of the engine's report."""
    name, _, digest = image.partition("@")
    async with session.post("/images/create", params={"fromImage": name.rpartition(":")[0], "tag": digest}) as answer:
        text = await answer.text()
        if answer.status != 200 or '"error' in text:
            raise SystemExit(f"pull of {image} answered {answer.status}: {text[-300:]}")


async def create(session: aiohttp.ClientSession, image: str) -> str:
    """Create a container that prints the time; return its id."""
    body = {"Image": image, "Cmd": ["/bin/work", "now"], "HostConfig": {"LogConfig": {"Type": "none"}}}
    async with session.post("/containers/create", json=body) as answer:
        found = await answer.json()
        if answer.status != 201:
            raise SystemExit(f"create answered {answer.status}: {found}")
        return str(found["Id"])


async def remove(session: aiohttp.ClientSession, container: str) -> None:
    """Remove a container."""
    async with session.delete(f"/containers/{container}?force=1"):
        pass


async def output(container: str) -> bytes:
    """Return all bytes that an attached client reads, frames included."""
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    headers = "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n"
    writer.write(f"POST /containers/{container}/attach?stdout=1&stream=1 HTTP/1.1\r\n{headers}\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    data = await reader.read()
    writer.close()
    return data


def moments(output: bytes) -> tuple[float, float]:
    """Return the first and the last time in a payload's output, which has frames of eight bytes and a text."""
    found = [float(seconds) for seconds in re.findall(rb"(?:start|end) (\d+\.\d+)", output)]
    return min(found), max(found)


async def job(session: aiohttp.ClientSession, image: str) -> dict[str, float]:
    """Run one empty job; return its moments."""
    asked = time.time()
    await pull(session, image)
    container = await create(session, image)
    attached = asyncio.ensure_future(output(container))
    await asyncio.sleep(0.02)  # the CLI attaches before it starts, too
    async with session.post(f"/containers/{container}/wait?condition=next-exit") as waiting:
        async with session.post(f"/containers/{container}/start"):
            pass
        await waiting.read()
        told = time.time()
    first, last = moments(await attached)
    await remove(session, container)
    return {"asked": asked, "first": first, "last": last, "told": told}


async def bind(session: aiohttp.ClientSession, image: str) -> float:
    """Bind and free; return the seconds that the client waited."""
    began = time.monotonic()
    container = await create(session, image)
    seconds = time.monotonic() - began
    await remove(session, container)
    return seconds


async def requests(session: aiohttp.ClientSession) -> int:
    """Return the number of API requests that the pilot has made."""
    async with session.get("/info") as answer:
        labels = (await answer.json())["Labels"]
    return int(labels[0].partition("=")[2])


async def main() -> None:
    """Answer line by line until the end of the input."""
    limits = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.UnixConnector(SOCKET)
    async with aiohttp.ClientSession("http://docker", connector=connector, timeout=limits) as session:
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
