"""A provisioner that is killed at any of its requests to the API server leaves nothing that the next one gets wrong.

The controller runs in this process, with the real API server. Its death is that it sends nothing more.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client, config

from k8spilot.provisioner.cluster import NamespaceClient
from k8spilot.provisioner.controller import Controller
from k8spilot.provisioner.leader import Leadership
from k8spilot.provisioner.planning.model import Demand, JobGroup
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.pool.client import PoolClient
from k8spilot.provisioner.pool.configuration import PoolConfiguration
from k8spilot.provisioner.pool.query import PoolQuery, PoolView
from k8spilot.provisioner.settings import ProvisionerSettings
from k8spilot.provisioner.templates.store import TemplateStore
from lab.api import Lab
from lab.factory import Factory, factory
from tests.e2e.pool import until
from tests.e2e.provisioner.pilots import SMALL

pytestmark = pytest.mark.landing

JOBS = 3
CLOSING_S = 0.5
"""For TLS connections to close after their session (aiohttp's manual, Graceful Shutdown)."""
LATER_S = 400.0
"""For the clock: a pilot that cannot start is surplus after three minutes without jobs."""
NOWHERE = {
    "op": "add",
    "path": "/spec/jobTemplate/spec/template/spec/nodeSelector",
    "value": {"k8spilot-lab/nowhere": "true"},
}


class Jobs(PoolClient):
    """A pool with idle jobs and no slots."""

    def __init__(self, idle: int) -> None:
        super().__init__(PoolConfiguration(Path("/nonexistent"), ""))
        self._idle = idle

    async def run(self, query: PoolQuery) -> PoolView:
        """Return what such a pool would say."""
        matches = {template.name: (0,) for template in query.templates}
        groups = [JobGroup("alice", self._idle, Resources(1, 64, 20480), matches)] if self._idle else []
        return PoolView(Demand(groups, 0), [], 0.0)


class Life:
    """The requests of a process. It dies before the request `at` is sent, or after the API server has done it."""

    def __init__(self, at: int, *, is_done: bool) -> None:
        self.dead = asyncio.Event()
        self._at = at
        self._is_done = is_done
        self._changes = 0

    def restrict(self, api: client.ApiClient) -> None:
        """Send requests of this client as long as the process lives."""
        original = api.call_api

        async def call_api(method: str, *arguments: Any, **options: Any) -> Any:
            if self.dead.is_set():
                await asyncio.Event().wait()  # ends by cancellation: a dead process sends nothing
            if method != "GET":
                self._changes += 1
            is_last = method != "GET" and self._changes == self._at
            if is_last and not self._is_done:
                await self._die()
            found = await original(method, *arguments, **options)
            if is_last:
                found.response.close()  # nobody will read it
                await self._die()
            return found

        api.call_api = call_api

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def connected(site: Factory, life: Life | None = None) -> AsyncIterator[NamespaceClient]:
    """A connection of its own to the API server."""
    configuration = client.Configuration()
    configuration.retries = None
    await config.load_kube_config(str(site.lab.kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        if life is not None:
            life.restrict(api)
        yield NamespaceClient(api, site.namespace)


@pytest.fixture(scope="module")
def site(lab: Lab, owner: str) -> Iterator[Factory]:
    """A namespace with a template whose pilots get no node, and without a provisioner of its own."""
    with factory(lab, f"factory-{owner}-requests") as found:
        folder = found.write([replace(SMALL, patches=[NOWHERE])], {})
        documents = yaml.safe_load_all(lab.kubectl("kustomize", str(folder)))
        applied = yaml.safe_dump_all(one for one in documents if one["kind"] != "Deployment")
        lab.kubectl("apply", "-f", "-", input=applied)
        yield found


async def lived(site: Factory, life: Life, store: TemplateStore, idle: int) -> bool:
    """Begin as a new process and take turns until a plan has nothing to do; return whether it survived that."""
    settings = ProvisionerSettings.of(
        {"CONDOR_HOST": site.lab.pool_host, "POD_NAME": "provisioner", "POD_NAMESPACE": site.namespace}
    )

    async def work() -> None:
        await leadership.acquired.wait()
        await controller.pods.listed.wait()
        await controller.recall()
        while not is_done(controller):
            await controller.turn()
            await asyncio.sleep(0.1)

    async with AsyncExitStack() as ends:
        cluster = await ends.enter_async_context(connected(site, life))
        leadership = Leadership(cluster, settings.pod_name)
        controller = Controller(settings, cluster, Jobs(idle), leadership)
        controller.templates = store  # the same in each life, and a second's work to make
        parts = (leadership.run(), controller.pods.run(), work(), life.dead.wait())
        running = [asyncio.create_task(one) for one in parts]
        try:
            await asyncio.wait(running[2:], timeout=60, return_when=asyncio.FIRST_COMPLETED)
            if running[2].done():
                await running[2]
            assert running[2].done() or life.dead.is_set(), "neither done nor dead after 60 s"
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return not life.dead.is_set()


def is_done(controller: Controller) -> bool:
    """Whether the last plan has changed nothing."""
    plan = controller.metrics.plan
    return plan is not None and not any(one.create or one.delete for one in plan.templates.values())


@asynccontextmanager
async def templates(site: Factory) -> AsyncIterator[TemplateStore]:
    """The templates of the namespace."""
    async with connected(site) as cluster:
        store = TemplateStore(cluster, site.lab.pool_host)
        running = asyncio.create_task(store.reflector.run())
        try:
            async with asyncio.timeout(30):
                await store.reflector.listed.wait()
            yield store
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(CLOSING_S)  # of the connections of all lives, before the event loop ends


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_answered", [False, True], ids=["before it is sent", "before its answer"])
async def test_a_provisioner_that_is_killed_at_any_request_is_followed_by_one_that_makes_and_deletes_the_same(
    site: Factory, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    async with templates(site) as store:
        survived, at = False, 0
        for at in itertools.count(1):
            site.kubectl("delete", "configmap", "k8spilot-provisioner-status", "--ignore-not-found")
            survived = await lived(site, Life(at, is_done=is_answered), store, JOBS)
            assert await lived(site, Life(0, is_done=False), store, JOBS)
            assert len(site.pilots()) == JOBS, f"killed at request {at}"
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda: now() + LATER_S)
                survived &= await lived(site, Life(at, is_done=is_answered), store, 0)
                assert await lived(site, Life(0, is_done=False), store, 0)
            until(  # the pod garbage collector takes twenty seconds
                lambda: not site.pilots(), f"all are deleted after the death at request {at}", 60
            )
            if survived:
                break
    assert at > JOBS + 2, "the Lease, the pilots, the status"
