"""The link between the engine and the HTCondor agent, over a real socket; HTCondor's tool is a script."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from k8spilot.common import pilot_api
from k8spilot.condor.ads.agent_link import RemoteStartdAd, facts_route
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.agent import HTCondorAgent, facts
from k8spilot.condor.daemons import pool_watch
from k8spilot.condor.folders import Folders
from k8spilot.model.pool_state import LOG, PoolState
from k8spilot.settings import Settings
from k8spilot.supervisor.plan import DONE, FACTS
from tests.unit.condor_reads import settings as known_settings
from tests.unit.observed_follower import observe_followers
from tests.waiting import eventually

END_OF_STARTD = "The STARTD (pid 17) exited with status 0"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(known_settings(), socket=tmp_path / "docker.sock")


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    known = Folders(tmp_path / "execute", root=tmp_path)
    known.private.mkdir(parents=True)
    known.log.mkdir(parents=True)
    (known.log / "MasterLog").touch()
    return known


@asynccontextmanager
async def served(socket: Path, *routes: web.RouteDef) -> AsyncIterator[None]:
    """Serve routes on a Unix socket."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        yield
    finally:
        await runner.cleanup()


def engine(slot: RemoteStartdAd, socket: Path) -> AbstractAsyncContextManager[None]:
    """Serve the engine's routes of the slot's ad on the Docker socket."""
    return served(socket, *slot.routes, facts_route(lambda: "2026-01-02T03:04:05Z"))


@asynccontextmanager
async def agent(settings: Settings, folders: Folders) -> AsyncIterator[tuple[list[int], asyncio.Task[None]]]:
    """The HTCondor agent; gives the signals that it sends its supervisor, and its task."""
    update, query = folders.root / "update", folders.root / "query"
    update.write_text(f'#!/bin/sh\ncat "$1" >> {folders.root}/ad\n')
    query.write_text('#!/bin/sh\necho \'[{"Name": "slot1@x", "State": "Claimed", "JobId": "7.1"}]\'\n')
    for program in (update, query):
        program.chmod(0o755)
    signals: list[int] = []
    slot = LocalStartdAd(folders, settings, update=str(update), query=str(query), vacate="true")
    task = asyncio.create_task(HTCondorAgent(settings, slot, signals.append).run())
    try:
        yield signals, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _ad(folders: Folders) -> str:
    file = folders.root / "ad"
    return file.read_text() if file.exists() else ""


async def test_the_engine_changes_the_ad_and_asks_for_it(settings: Settings, folders: Folders) -> None:
    slot = RemoteStartdAd()
    async with engine(slot, settings.socket), agent(settings, folders):
        await eventually(lambda: slot.is_connected)
        assert await slot.set({"K8SImageStatus": "bound"})
        assert 'K8SImageStatus = "bound"' in _ad(folders)
        assert await slot.query(["State"]) == [{"Name": "slot1@x", "State": "Claimed", "JobId": "7.1"}]
        assert await slot.vacate("7.1", "slot1")
        assert not await slot.vacate("7.2", "slot1")
    assert not slot.is_connected


async def test_without_htcondor_nothing_is_told_and_all_is_when_it_comes(settings: Settings, folders: Folders) -> None:
    slot = RemoteStartdAd()
    async with engine(slot, settings.socket):
        assert not slot.is_connected
        assert not await slot.set({"Late": 1})
        assert await slot.query(["State"]) is None
        assert not await slot.vacate("7.1", "slot1")
        async with agent(settings, folders):
            await eventually(lambda: "Late = 1" in _ad(folders))


@pytest.mark.slow
async def test_the_engine_hears_what_htcondors_daemons_log(
    settings: Settings, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading = observe_followers(monkeypatch)
    heard: list[tuple[str, str]] = []

    async def handle_line(log: str, line: str) -> None:
        heard.append((log, line))

    slot = RemoteStartdAd()
    slot.handle_line = handle_line
    async with engine(slot, settings.socket), agent(settings, folders) as (signals, _):
        await eventually(lambda: slot.is_connected)
        await eventually(is_reading)  # from the end of the file on
        with (folders.log / "MasterLog").open("a") as log:
            log.write("something\n")
        await eventually(lambda: ("MasterLog", "something") in heard)
        assert signals == []
        with (folders.log / "MasterLog").open("a") as log:
            log.write(f"{END_OF_STARTD}\n")
        await eventually(lambda: signals == [DONE])


async def test_an_agent_that_is_told_to_end_reads_and_sends_the_last_lines_first(
    settings: Settings, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading = observe_followers(monkeypatch)
    heard: list[tuple[str, str]] = []
    told = "11/27/26 23:08:07 Got SIGTERM. Performing graceful shutdown."
    why = "11/27/26 23:08:07 No resources have been claimed for 15 seconds"

    async def handle_line(log: str, line: str) -> None:
        heard.append((log, line))

    slot = RemoteStartdAd()
    slot.handle_line = handle_line
    idle = replace(settings, accept_idle_minutes=0.25)
    async with engine(slot, settings.socket), agent(idle, folders) as (_, running):
        await eventually(lambda: slot.is_connected)
        await eventually(is_reading)  # from the end of the file on
        with (folders.log / "MasterLog").open("a") as log:
            log.write(f"{told}\n")
        await eventually(lambda: ("MasterLog", told) in heard)
        assert "HTCondor was told to end" in folders.end_reason.read_text()
        (folders.log / "StartLog").write_text(f"{why}\n")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(15):
            await running
        await eventually(lambda: ("StartLog", why) in heard)
    assert "idle for 0.25 min (ACCEPT_IDLE_MINUTES)" in folders.end_reason.read_text()


async def test_the_engine_hears_of_the_pool_whenever_it_connects_and_when_htcondor_goes(
    settings: Settings, folders: Folders
) -> None:
    async def hear_of_one_engine() -> None:
        heard: list[str] = []  # an engine that has ended may hear its last line later

        async def handle_line(log: str, line: str) -> None:
            if log == LOG:
                heard.append(line)

        slot = RemoteStartdAd()
        slot.handle_line = handle_line
        before = slot.expected
        async with engine(slot, settings.socket):
            await eventually(lambda: heard)
            assert (before, slot.expected) == (False, True)
            assert not PoolState.of(heard[-1]).in_pool
        await eventually(lambda: heard[-1] == "")

    async with agent(settings, folders):
        await hear_of_one_engine()
        await hear_of_one_engine()


async def test_the_reason_of_an_end_is_left_for_the_supervisor(
    settings: Settings, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading = observe_followers(monkeypatch)
    async with agent(settings, folders):
        await eventually(is_reading)
        with (folders.log / "StartLog").open("a") as log:
            log.write("11/25/26 13:39:32.820 (pid:35) (D_ALWAYS) No resources have been claimed for 1800 seconds\n")
        await eventually(folders.end_reason.exists)
        assert folders.end_reason.read_text() == "0 0 idle for 30 min (ACCEPT_IDLE_MINUTES)"


async def test_a_pilot_that_was_never_in_the_pool_ends_from_htcondors_side(
    settings: Settings, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_watch, "_START_SECONDS", 0.05)
    known = replace(settings, condor_host="127.0.0.1:1", join_timeout_seconds=0.1)
    async with agent(known, folders) as (signals, _):
        await eventually(lambda: DONE in signals)
        assert folders.end_reason.read_text().startswith("1 1 the slot was not in the pool within 0.1 s: 127.0.0.1:1: ")


async def test_the_engine_ends_htcondor_also_one_that_comes_later(settings: Settings, folders: Folders) -> None:
    slot = RemoteStartdAd()
    async with engine(slot, settings.socket):
        slot.end()
        async with agent(settings, folders) as (signals, _):
            await eventually(lambda: signals == [signal.SIGTERM])


async def test_while_the_engine_is_away_no_job_is_taken(
    settings: Settings, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.condor.agent._ABSENCE_SECONDS", 0.2)
    async with agent(settings, folders):
        await eventually(lambda: "K8SApiAwayUntil = 1" in _ad(folders))
        async with engine(RemoteStartdAd(), settings.socket):
            await eventually(lambda: "K8SApiAwayUntil = undefined" in _ad(folders))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"id": [1]}', '{"log": 1}', "7", '{"id": 99, "answer": 1}', "[" * 9999]
)
async def test_what_makes_no_sense_is_not_heard(text: str) -> None:
    slot = RemoteStartdAd()
    handle_line: Callable[[str, str], Awaitable[None]] = lambda _log, _line: asyncio.sleep(0)  # noqa: E731
    slot.handle_line = handle_line
    await slot._handle(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_", ["{", "[]", "{}", '{"set": {"A": 1}}', '{"id": 1, "set": 7}', '{"id": 1, "look": 7}']
)
async def test_an_invalid_request_of_the_engine_does_not_end_the_agent(
    settings: Settings, folders: Folders, request_: str
) -> None:
    connected: list[web.WebSocketResponse] = []

    async def serve(request: web.Request) -> web.WebSocketResponse:
        link = web.WebSocketResponse()
        await link.prepare(request)
        connected.append(link)
        await link.send_str(request_)
        await asyncio.sleep(0.1)
        await link.close()
        return link

    async with served(settings.socket, web.get(pilot_api.LINK, serve)), agent(settings, folders):
        await eventually(lambda: len(connected) > 1)


async def test_htcondors_container_asks_the_engine_what_it_cannot_see(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FACTS, '{"K8SVersion": "v1.2.3"}')
    async with engine(RemoteStartdAd(), settings.socket):
        assert await facts(settings.socket) == {
            "started": "2026-01-02T03:04:05Z",
            "attributes": {"K8SVersion": "v1.2.3"},
        }
