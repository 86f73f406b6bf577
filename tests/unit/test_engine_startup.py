"""The engine's start: payload-init that does not come."""

from pathlib import Path

import pytest

from k8spilot.engine import startup
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.payload_init.install import SOCKET
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import Settings
from k8spilot.supervisor.plan import DEATHS


@pytest.mark.parametrize(
    ("had_an_engine", "deaths", "is_killed"),
    [(False, "0", False), (True, "0", True), (False, "1", True)],
    ids=["the pod's first start", "the pilot's container was started again", "the engine was started again"],
)
async def test_payload_init_that_does_not_come_is_killed_only_where_a_job_can_have_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, had_an_engine: bool, deaths: str, is_killed: bool
) -> None:
    killed: list[int] = []

    def kill(uid: int, _cgroup: str) -> int:
        killed.append(uid)
        return 1

    monkeypatch.setattr(startup, "_PAYLOAD_SECONDS", 0.05)
    monkeypatch.setattr(startup, "kill_outside", kill)
    monkeypatch.setenv(DEATHS, deaths)
    if had_an_engine:
        GpuRecord().save(tmp_path)  # it looks for GPUs before it takes any job
    settings = Settings(
        pod_name="pilot", pod_namespace="pilots", services=("engine",), payload_uid=46997, exchange=tmp_path
    )
    async with PayloadInitServer(tmp_path / SOCKET, 46997) as init_server:
        assert await startup.await_payload_init(settings.slots[0], init_server, "cgroup") == is_killed
    assert killed == ([46997] if is_killed else [])
