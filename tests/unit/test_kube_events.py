"""Events that outlive the process that has published them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from k8spilot.kube.client import Access, Api
from k8spilot.kube.events import Events
from k8spilot.telemetry.event_recorder import EventRecorder
from tests.simulator.api_server import ApiServer
from tests.unit.test_telemetry import Told


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    server = ApiServer({"metadata": {"name": "pilot", "namespace": "pilots", "uid": "u"}})
    async with server.serve():
        yield server


async def test_identical_events_are_one_with_a_count_also_of_several_processes() -> None:
    async with api_server() as server:
        for start in range(3):
            async with Api(Access(server.url)) as api:
                events = Events(api, "pilots", "pilot", "u")
                assert await events.publish("NotFit", "There is no token.") == start + 1
                assert await events.publish("NotFit", "There is no volume.") == start + 1
        assert sorted((one["message"], one["count"]) for one in server.told.values()) == [
            ("There is no token.", 3),
            ("There is no volume.", 3),
        ]


async def test_another_pod_of_that_name_has_events_of_its_own() -> None:
    async with api_server() as server, Api(Access(server.url)) as api:
        for uid in ("u", "v"):
            await Events(api, "pilots", "pilot", uid).publish("NotFit", "There is no token.")
        assert [one["count"] for one in server.told.values()] == [1, 1]


async def test_an_engine_after_a_dead_one_counts_on() -> None:
    async with api_server() as server:
        for _ in range(2):
            async with Api(Access(server.url)) as api:
                told = Told()
                told.event_recorder = EventRecorder(Events(api, "pilots", "pilot", "u"))
                for _ in range(3):
                    told.event_recorder.record("ImageRefused", "There is no such image.", key="image")
                    await told.all()
        assert [one["count"] for one in server.told.values()] == [6]
