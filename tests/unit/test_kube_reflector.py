"""A reflector of a pod: what an API server sends that is no event of a watch, and what it is asked for after that."""

import asyncio
import json
import logging
from typing import Any

import pytest
from aiohttp import web

from k8spilot.kube import watch_pace
from k8spilot.kube.client import Access, Api
from k8spilot.kube.reflector import PodReflector


def pod(version: int) -> dict[str, Any]:
    """The pod, with its version also in an annotation."""
    metadata = {"name": "pilot", "uid": "1", "resourceVersion": str(version), "annotations": {"v": str(version)}}
    return {"metadata": metadata}


def refused(code: Any, message: str = "") -> bytes:
    """The event that ends a watch."""
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": message}}).encode()


class Server:
    """An API server of one pod, whose first watch has some lines and ends; of the second nothing comes."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.requests: list[str] = []
        self.over = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The list, and watches."""
        if "watch" not in request.query:
            self.requests.append("list")
            version = 10 * len(self.requests)
            return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": [pod(version)]})
        self.requests.append(f"watch from {request.query['resourceVersion']}")
        response = web.StreamResponse()
        await response.prepare(request)
        if len(self.requests) > 2:
            await self.over.wait()
            return response
        await response.write(json.dumps({"type": "MODIFIED", "object": pod(11)}).encode() + b"\n" + self.line + b"\n")
        return response


@pytest.fixture
async def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    """One whose first watch ends with a line, followed by a reflector."""
    monkeypatch.setattr(watch_pace, "_BACK_OFF_SECONDS", (0.05, 0.1))
    server = Server(request.param)
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/pilots/pods", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with Api(Access(f"http://127.0.0.1:{runner.addresses[0][1]}")) as api:
        own = PodReflector(api, "pilots", "pilot")
        following = asyncio.create_task(own.run())
        async with asyncio.timeout(10):
            while not server.requests or server.requests[-1] in ("list", "watch from 10"):
                assert not following.done(), following.result()
                await asyncio.sleep(0.01)
        assert not following.done()
        following.cancel()
        await asyncio.wait([following])
    server.over.set()
    await runner.cleanup()
    return server


@pytest.mark.parametrize(
    "server",
    [
        b"nonsense",
        b"null",
        b"[1]",
        b'{"type":"ERROR","object":null}',
        b'{"type":"ERROR","object":{"code":"x"}}',
        b'{"type":"MODIFIED","object":null}',
        b'{"type":"MODIFIED","object":{"metadata":[]}}',
        b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":{}}}}',
        b'{"type":' + b"[" * 100_000 + b"}",
        refused(410, "too old resource version"),
        refused(504, "Too large resource version: 11, current: 3"),
        refused(None),
    ],
    indirect=True,
    ids=lambda line: line[:60].decode(),
)
def test_what_is_no_event_or_not_of_this_version_is_followed_by_a_list(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    assert server.requests == ["list", "watch from 10", "list", "watch from 30"]
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("server", [refused(code) for code in (401, 403, 429, 500, 503, 504)], indirect=True)
def test_a_watch_that_is_refused_for_now_begins_again_where_it_was(server: Server) -> None:
    assert server.requests == ["list", "watch from 10", "watch from 11"]
