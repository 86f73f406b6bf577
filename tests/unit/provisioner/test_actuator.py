"""The actuator makes and deletes pods, and gives a remedy when the API server refuses."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from k8spilot.provisioner.actuator import Actuator, Done, mark_of
from k8spilot.provisioner.cluster import Reflector
from k8spilot.provisioner.planning.model import PilotState
from k8spilot.provisioner.planning.plan import TemplatePlan, TurnPlan
from k8spilot.provisioner.supply import PilotPod, pod_facts
from tests.unit.provisioner import api
from tests.unit.provisioner.world import NOW, several, template

OBJECT = {
    "metadata": {"name": "cpu", "uid": "1b4e28ba", "namespace": "pilots"},
    "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}},
}


class Server:
    """The API server: it refuses what `refusals` says, by method."""

    def __init__(self, refusals: dict[str, web.Response] | None = None) -> None:
        self.refusals = refusals or {}
        self.created: list[str] = []
        self.deleted: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if (refusal := self.refusals.get(request.method)) is not None:
            body = refusal.body
            assert isinstance(body, bytes)
            return web.Response(status=refusal.status, body=body, content_type="application/json")
        if request.method == "DELETE":
            self.deleted.append(request.path.rpartition("/")[2])
            return web.json_response({})
        found = await request.json()
        self.created.append(found["metadata"]["name"])
        return web.json_response(api.pod(found["metadata"]["name"], 7))


async def done(server: Server, folder: Path, patch: pytest.MonkeyPatch, create: int = 0, **more: Any) -> Done:
    """Do a plan."""
    plan = TemplatePlan(template(), create=create, delete=[(one, "why") for one in more.pop("delete", ())])
    async with api.serving(server.answer, folder, patch) as cluster:
        pods: Reflector[PilotPod] = Reflector(cluster, "pods", "k8spilot/template", pod_facts)
        may_act = more.pop("may_act", lambda: True)
        return await Actuator(cluster, pods, may_act).do(TurnPlan({"cpu": plan}, [], **more), {"cpu": OBJECT}, NOW)


async def test_pilots_are_named_by_template_mark_minute_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    assert (await done(server, tmp_path, monkeypatch, 2)).created == {"cpu": 2}
    mark = mark_of(OBJECT)
    assert sorted(server.created) == [f"cpu-{mark}-20270115-0800-00{place}" for place in range(2)]
    assert mark != mark_of({"metadata": {"uid": "another"}}), "as that of another cluster has"


async def test_a_pilot_does_not_get_the_name_of_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    async with api.serving(server.answer, tmp_path, monkeypatch) as cluster:
        pods: Reflector[PilotPod] = Reflector(cluster, "pods", "k8spilot/template", pod_facts)
        actuator = Actuator(cluster, pods, lambda: True)
        for seconds in (0, 20, 60):
            await actuator.do(TurnPlan({"cpu": TemplatePlan(template(), create=1)}, []), {"cpu": OBJECT}, NOW + seconds)
            pods.drop(server.created[-1])
    assert [name[-8:] for name in server.created] == ["0800-000", "0800-001", "0801-000"]


async def test_nothing_more_is_made_once_another_provisioner_has_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    found = await done(server, tmp_path, monkeypatch, 60, may_act=lambda: len(server.created) < 20)
    assert len(server.created) == 20
    assert "another provisioner has the Lease" in found.fault


async def test_pilots_are_made_though_a_deletion_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({"DELETE": api.status(403, "Forbidden", "a webhook says no")})
    old = several(1, PilotState.SUCCEEDED)
    found = await done(server, tmp_path, monkeypatch, 1, delete=old)
    assert len(server.created) == 1
    assert found.fault == "template cpu: a webhook says no"


async def test_ended_pods_of_a_template_that_cannot_be_used_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    (old,) = several(1, PilotState.SUCCEEDED, "gpu")
    await done(server, tmp_path, monkeypatch, ended={"gpu": [(old, "it has come to its end")]})
    assert server.deleted == [old.name]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("exceeded quota: few, requested: pods=1", "the namespace's quota is used up; lower max-pilots"),
        ("failed quota: few: must specify limits.cpu", "counts what the pod does not state; give its containers that"),
        ("maximum cpu usage per Pod is 2, but limit is 4", "LimitRange does not allow such a pod"),
        ("minimum memory usage per Container is 1Gi", "LimitRange does not allow such a pod"),
        ("cpu max limit to request ratio per Container is 2", "LimitRange does not allow such a pod"),
        ("admission webhook denied the request", "look at its policies and the provisioner's rights"),
    ],
)
async def test_a_refusal_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, remedy: str) -> None:
    server = Server({"POST": api.status(403, "Forbidden", f"pods is forbidden: {words}")})
    assert remedy in (await done(server, tmp_path, monkeypatch, 3)).refusals["cpu"]
