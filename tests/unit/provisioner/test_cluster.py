"""The provisioner's copies of objects: lists, watches, and what happens when they fail."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from k8spilot.kube.client import ApiRefusal
from k8spilot.provisioner.cluster import Reflector
from tests.unit.provisioner import api

Pods = Reflector[str]


async def until(reflector: Pods, **wanted: str) -> None:
    """Wait until the copy is this: names and versions."""
    async with asyncio.timeout(20):
        while reflector.objects != wanted or reflector.fault:  # noqa: ASYNC110 -- it has no event of its own
            await asyncio.sleep(0.01)


def reflector(cluster: Any) -> Pods:
    """A copy of the pods' versions."""
    return Reflector(cluster, "pods", "k8spilot/template", lambda found: str(found["metadata"]["resourceVersion"]))


async def watch(request: web.Request, *events: tuple[str, dict[str, Any]], end: asyncio.Event) -> web.StreamResponse:
    """The answer to a watch."""
    response = web.StreamResponse()
    await response.prepare(request)
    for kind, found in events:
        await response.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")
    await end.wait()
    return response


async def test_an_error_of_the_server_is_told_at_once_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return api.status(503)

    async with api.serving(answer, tmp_path, monkeypatch) as cluster, asyncio.timeout(10):
        with pytest.raises(ApiRefusal):
            await cluster.request("GET", cluster.path("pods"))
    assert asked == 1


async def test_changes_of_a_watch_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return api.pods(10, api.pod("a", 1), api.pod("b", 2))
        changes = [("ADDED", api.pod("c", 11)), ("MODIFIED", api.pod("a", 12)), ("DELETED", api.pod("b", 13))]
        return await watch(request, *changes, end=end)

    async with api.serving(answer, tmp_path, monkeypatch) as cluster:
        pods = reflector(cluster)
        work = asyncio.create_task(pods.run())
        await until(pods, a="12", c="11")
        pods.take(api.pod("b", 5))
        assert "b" not in pods.objects, "it was deleted at version 13"
        pods.take(api.pod("d", 14))
        pods.take(api.pod("a", 3))
        assert pods.objects == {"a": "12", "c": "11", "d": "14"}
        pods.drop("d")
        assert pods.objects == {"a": "12", "c": "11"}
        work.cancel()
        end.set()


async def test_a_copy_whose_watch_is_too_old_is_at_fault_until_there_is_a_new_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, go_on = asyncio.Event(), asyncio.Event()
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return api.status(410, "Expired", "too old") if lists == 1 else await watch(request, end=end)
        lists += 1
        if lists == 2:
            await go_on.wait()
        return api.pods(10 * lists, api.pod("a", lists))

    async with api.serving(answer, tmp_path, monkeypatch) as cluster:
        pods = reflector(cluster)
        work = asyncio.create_task(pods.run())
        async with asyncio.timeout(20):
            while lists < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert pods.fault == "too old"
        pods.take(api.pod("new", 15))
        go_on.set()
        await until(pods, a="2", new="15")
        work.cancel()
        end.set()
        with suppress(asyncio.CancelledError):
            await work
