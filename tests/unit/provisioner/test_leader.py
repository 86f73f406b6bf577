"""The Lease of the provisioner: who holds it, and when it is lost."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client

from k8spilot.provisioner import leader
from k8spilot.provisioner.cluster import NamespaceClient
from k8spilot.provisioner.leader import Leadership

LEASES = "/apis/coordination.k8s.io/v1/namespaces/pilots/leases"
NAME = f"{LEASES}/{leader.LEASE}"
DURATION_S = 3


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_DURATION", DURATION_S), ("_DEADLINE", 2), ("_RETRY", 1), ("_REQUEST_SECONDS", 0.5)):
        monkeypatch.setattr(leader, name, seconds)


class Leases:
    """An API server that has one Lease and can be silent."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {}
        self.answers = asyncio.Event()
        self.answers.set()

    async def read(self, _: web.Request) -> web.Response:
        """GET of the Lease."""
        await self.answers.wait()
        if not self.lease:
            return web.json_response({"kind": "Status", "code": 404}, status=HTTPStatus.NOT_FOUND)
        return web.json_response(self.lease)

    async def write(self, request: web.Request) -> web.Response:
        """POST, PUT and PATCH of the Lease."""
        await self.answers.wait()
        found = await request.json()
        version = self.lease.get("metadata", {}).get("resourceVersion")
        if request.method != "PATCH" and found["metadata"].get("resourceVersion") != version:
            return web.json_response({"kind": "Status", "code": 409}, status=HTTPStatus.CONFLICT)
        metadata = {"name": leader.LEASE, "resourceVersion": str(int(version or 0) + 1)}
        self.lease = {"metadata": metadata, "spec": {**self.lease.get("spec", {}), **found["spec"]}}
        return web.json_response(self.lease)


@asynccontextmanager
async def candidate(leases: Leases, name: str = "one") -> AsyncIterator[Leadership]:
    """A process that tries to get the Lease."""
    application = web.Application()
    application.add_routes([web.get(NAME, leases.read), web.post(LEASES, leases.write)])
    application.add_routes([web.put(NAME, leases.write), web.patch(NAME, leases.write)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    configuration.retries = False
    async with client.ApiClient(configuration) as session:
        found = Leadership(NamespaceClient(session, "pilots"), name)
        work = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            work.cancel()
            leases.answers.set()
    await runner.cleanup()


async def held(one: Leadership, *, is_held: bool) -> None:
    """Wait until it holds the Lease, or does not."""
    while one.is_held is not is_held:  # noqa: ASYNC110 -- it depends on the time, so that nothing can notify
        await asyncio.sleep(0.02)


async def test_the_first_one_holds_the_lease_until_it_gives_it_back() -> None:
    leases = Leases()
    async with candidate(leases) as one:
        async with asyncio.timeout(10):
            await held(one, is_held=True)
        assert leases.lease["spec"]["holderIdentity"] == "one"
        await one.release()
        await held(one, is_held=False)
        assert leases.lease["spec"]["holderIdentity"] is None


@pytest.mark.slow
async def test_whoever_gets_no_answers_loses_the_lease_before_it_expires_and_gets_it_again() -> None:
    leases = Leases()
    async with candidate(leases) as one, asyncio.timeout(30):
        await one.acquired.wait()
        leases.answers.clear()
        began = time.monotonic()
        await held(one, is_held=False)
        assert time.monotonic() - began < DURATION_S + 0.5
        leases.answers.set()
        await held(one, is_held=True)


@pytest.mark.slow
async def test_a_lease_that_somebody_else_renews_is_not_taken() -> None:
    leases = Leases()
    async with candidate(leases) as one, candidate(leases, "two") as other, asyncio.timeout(30):
        await asyncio.wait(
            [asyncio.create_task(one.acquired.wait()), asyncio.create_task(other.acquired.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for _ in range(40):
            assert not (one.is_held and other.is_held)
            await asyncio.sleep(0.1)


async def test_a_process_that_was_stopped_finds_the_lease_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases()
    async with candidate(leases) as one, asyncio.timeout(30):
        await one.acquired.wait()
        assert one.is_held
        later = time.monotonic() + DURATION_S
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert not one.is_held
