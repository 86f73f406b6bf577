"""A Secret that comes after the pod is found without a new start of the container."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from k8spilot.condor.folders import Folders
from k8spilot.kube.client import Access
from k8spilot.preflight import late_credentials
from k8spilot.settings import Settings
from tests.unit.test_condor_folders import idtoken
from tests.waiting import eventually

SETTINGS = Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",))


class Pod:
    """A pod that remembers how it is changed, and the kubelet's mount of a Secret in it."""

    def __init__(self, folder: Path) -> None:
        self.folders = Folders(execute_volume=folder / "execute", root=folder)
        self.folders.original_tokens.mkdir(parents=True)
        self.costs: list[str] = []
        self.secret = ""

    async def change(self, request: web.Request) -> web.Response:
        """Take a patch; the kubelet synchronizes the pod then."""
        assert request.content_type == "application/merge-patch+json"
        (annotations,) = (await request.json()).values()
        self.costs += annotations["annotations"].values()
        if self.secret:
            self.mount(self.secret)
        return web.json_response({})

    def mount(self, token: str) -> None:
        """Show the Secret's content, as the kubelet does (pkg/volume/util/atomic_writer.go)."""
        folder = self.folders.original_tokens
        data = folder / f"..{time.monotonic_ns()}"
        data.mkdir()
        (data / "token").write_text(token)
        (folder / "..data_tmp").symlink_to(data.name)
        os.replace(folder / "..data_tmp", folder / "..data")  # noqa: PTH105
        if not (folder / "token").is_symlink():
            (folder / "token").symlink_to("..data/token")


@pytest.fixture
async def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    pod = Pod(tmp_path)
    app = web.Application()
    app.router.add_patch("/api/v1/namespaces/pilots/pods/pilot", pod.change)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        monkeypatch.setattr(Access, "in_cluster", lambda: Access(url))
        yield pod


async def test_the_kubelet_is_made_to_look_for_a_secret_that_has_come(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_credentials, "_REMIND_SECONDS", 0.05)
    waiting = asyncio.create_task(late_credentials.come(SETTINGS, pod.folders, 20))
    await eventually(lambda: len(pod.costs) >= 3)
    assert not waiting.done()
    pod.secret = idtoken(sub="pilot")
    assert await waiting
    assert pod.costs[:3] == ["-1", "-2", "-1"]  # each is a change


async def test_a_secret_that_is_corrected_is_found_too(pod: Pod) -> None:
    pod.mount("not a token")
    waiting = asyncio.create_task(late_credentials.come(SETTINGS, pod.folders, 20))
    await asyncio.sleep(0.1)
    pod.mount(idtoken(exp=1))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    pod.mount(idtoken(sub="pilot"))
    assert await waiting


async def test_a_secret_that_came_between_the_check_and_the_wait_is_found(pod: Pod) -> None:
    pod.mount(idtoken(sub="pilot"))
    assert await late_credentials.come(SETTINGS, pod.folders, 0.1)


async def test_a_wait_has_an_end_also_without_the_right_to_change_the_pod(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_credentials, "_REMIND_SECONDS", 0.0)
    monkeypatch.setattr(Access, "in_cluster", lambda: Access("http://127.0.0.1:1"))
    assert not await late_credentials.come(SETTINGS, pod.folders, 0.2)


async def test_where_no_secret_is_mounted_none_can_come(tmp_path: Path) -> None:
    assert not await late_credentials.come(SETTINGS, Folders(execute_volume=tmp_path, root=tmp_path), 20)


def test_pilots_that_wait_for_long_ask_the_api_server_less_and_less() -> None:
    pauses = [late_credentials._pause(number) for number in range(30)]
    assert all(4 <= pause <= 6 for pause in pauses[:12])
    assert 48 <= min(pauses[16:]) <= max(pauses) <= 72
    assert 12 + sum(1 for total in itertools.accumulate(pauses[12:]) if total < 540) < 24, "changes in ten minutes"
