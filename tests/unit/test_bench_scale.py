"""Many pilots: what is counted of them, and what stays when something fails."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import psutil
import pytest

from bench import api_server
from bench.parts.scale import PLANS
from bench.scale import experiment
from bench.scale.experiment import Measured
from bench.scale.kubelets import status
from bench.scale.pilots import CountedApi, Request
from bench.scale.server import API, ETCD
from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import Access, Api, ApiRefusal
from k8spilot.kube.pod import container
from k8spilot.kube.watch_pace import NEED_SECONDS


def test_what_was_not_measured_of_many_pilots_is_none_and_no_nought() -> None:
    one = Measured(10)
    assert one.spread is None
    assert one.busiest_second is None
    assert one.memory is None
    assert Measured(10, lists=[0.0, 1.0, 40.0]).spread == 40.0


async def test_a_watch_that_is_refused_in_its_answer_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def opened(_self: Api, _verb: str, path: str, **_wanted: object) -> AsyncIterator[None]:
        if path == "/never":
            raise ApiRefusal(429, "later")
        yield

    monkeypatch.setattr(Api, "open", opened)
    seen: list[Request] = []
    async with CountedApi(Access("http://127.0.0.1:9"), seen) as api:
        async with api.open("list", "/pods"):
            pass
        with pytest.raises(ApiRefusal):
            async with api.open("watch", "/pods"):
                raise ApiRefusal(410, "too old")
        with pytest.raises(ApiRefusal):
            async with api.open("watch", "/never"):
                pass
    assert [(one.verb, one.refused) for one in seen] == [("list", False), ("watch", True), ("watch", True)]


class _Pilot:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def bind(self) -> float:
        if self._error is not None:
            raise self._error
        return 0.25


class _Cluster:
    """A cluster in which no pilot returns after the API server's restart."""

    def __init__(self) -> None:
        self.pilots: list[_Pilot] = []
        self.requests: list[Request] = []

    async def make_pods(self, count: int) -> None:
        self.pilots = [_Pilot(), *(_Pilot(ClusterError("no")) for _ in range(count - 1))]

    async def begin(self, first: int) -> None:
        pass

    async def all_watch(self, _seconds: float) -> None:
        self.requests.append(Request(time.monotonic(), "watch", refused=True))
        raise TimeoutError


class _Server:
    def __init__(self) -> None:
        self._count = 0

    def processes(self) -> dict[str, psutil.Process]:
        return {API: psutil.Process(), ETCD: psutil.Process()}

    async def heap(self) -> float:
        return 5.0

    async def counters(self) -> api_server.Counters:
        self._count += 10
        counted = f'apiserver_watch_events_total{{resource="pods"}} {self._count}\n'
        return api_server.parse(f'{counted}apiserver_request_total{{verb="GET",resource="pods"}} {self._count}\n')

    async def stop_api(self) -> None:
        pass

    async def start_api(self) -> float:
        return time.monotonic()


async def test_what_was_measured_of_a_size_stays_when_binds_fail_and_not_all_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(experiment, "BIND_SECONDS", 0.1)
    found = Measured(20)
    plan = experiment.Plan(idle_seconds=0.05, rates=(20.0, 30.0), restart=True)
    await experiment.measure(cast("Any", _Server()), cast("Any", _Cluster()), found, plan, lambda _: None)
    assert found.binds == {20.0: [0.25]}
    assert found.bind_events == {20.0: 5}
    assert found.idle_requests
    assert not found.idle_whole
    assert found.heap == 5.0
    assert found.all_back is None
    assert found.turned_away == len(found.back) == 1
    assert [words.split(" ")[0] for words in found.troubles] == ["1", "not"]


def test_goals_about_many_pilots_are_about_sizes_that_are_measured() -> None:
    assert [size for size, plan in PLANS.items() if plan.restart] == [1000, 10_000]
    assert PLANS[max(PLANS)].idle_seconds >= 300
    # Who has bound within the last minute comes back to an API server at once.
    assert all(plan.idle_seconds > NEED_SECONDS for plan in PLANS.values() if plan.restart)


def test_a_faked_kubelet_says_what_pilots_read_in_a_pods_status() -> None:
    pod = {
        "spec": {
            "initContainers": [{"name": "payload", "image": "a:b"}],
            "containers": [{"name": "pilot", "image": "c"}],
        }
    }
    seen = container({**pod, "status": status(pod)}, "payload")
    assert seen is not None
    assert seen.running
    assert seen.image == "a:b"
    assert seen.container_id.startswith("containerd://")
