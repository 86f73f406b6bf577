"""Whether a payload container may still be looked into, where an engine finds no record of an earlier look."""

import os
from pathlib import Path
from typing import Any

import pytest

from k8spilot.gpu.discovery.record import FILE
from k8spilot.payload import gpu_discovery
from k8spilot.payload_init.server import PayloadInitServer

IDLE, JOB = "registry.example/k8spilot:1", "registry.example/job:1"
IDS = {IDLE: "sha256:1", JOB: "sha256:2"}


def pod(wanted: str, runs: str, restarts: int, state: str = "running") -> dict[str, Any]:
    """A pilot's pod, whose payload container is to have one image and has another."""
    return {
        "spec": {
            "initContainers": [{"name": "payload", "image": wanted}],
            "containers": [{"name": "pilot", "image": IDLE}],
        },
        "status": {
            "initContainerStatuses": [
                {"name": "payload", "imageID": IDS.get(runs, runs), "restartCount": restarts, "state": {state: {}}}
            ],
            "containerStatuses": [{"name": "pilot", "imageID": IDS[IDLE], "restartCount": 0, "state": {"running": {}}}],
        },
    }


@pytest.mark.parametrize(
    ("found", "looks"),
    [
        (pod(IDLE, IDLE, 0), True),
        (pod(IDLE, IDLE, 2), True),
        (pod(JOB, JOB, 1), False),
        # The idle image is asked for again, and the job's container is not over, or the next one has not begun.
        (pod(IDLE, JOB, 1), False),
        (pod(IDLE, IDLE, 2, "waiting"), False),
        (pod(IDLE, "", 2), False),
    ],
)
async def test_a_container_in_which_a_job_may_still_be_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], looks: bool
) -> None:
    monkeypatch.setattr(gpu_discovery, "_AT_ONCE", 0.01)
    async with PayloadInitServer(tmp_path / "socket", os.getuid()) as init_server:
        gpus, new = await gpu_discovery.discover(found, {}, "payload", init_server, tmp_path)
    assert new
    assert (tmp_path / FILE).exists()
    assert ("payload-init has not connected" in gpus.failure) == looks
    assert ("changed since the pod's start" in gpus.failure) != looks
