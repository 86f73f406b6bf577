"""HTCondor's own socket: only containers of HTCondor's jobs come by it."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest

from k8spilot.cli import status
from k8spilot.docker import htcondor_socket
from tests.engine.client import Client, unique_name
from tests.engine.rings import Simulated, eventually
from tests.simulator.pod import payload_image

LABELS = {"org.htcondorproject": "True"}


@pytest.fixture
async def door(simulator: Simulated) -> AsyncIterator[Client]:
    """HTCondor's socket."""
    async with Client(simulator.cluster.settings.slots[0].htcondor_socket) as client:
        yield client


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "another name": ("by-hand", {}),
    "another label's value": ("", {"Labels": {"org.htcondorproject": "False"}}),
    "no label": ("", {"Labels": {}}),
    "another label": ("", {"Labels": {**LABELS, "io.kubernetes.pod.name": "x"}}),
    "a terminal": ("", {"Tty": True}),
    "its own removal": ("", {"HostConfig": {"AutoRemove": True}}),
    "an entrypoint of two words": ("", {"Entrypoint": ["sh", "-c"]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", OTHERS)
async def test_htcondor_asks_for_no_container_with(door: Client, simulator: Simulated, what: str) -> None:
    name, options = OTHERS[what]
    body = {"Image": simulator.image("busybox"), "Cmd": ["true"], "Labels": LABELS, **options}
    answer = await door.ask("POST", "/containers/create", body, {"name": name or unique_name()})
    assert (answer.status, "HTCondor creates no container" in answer.message) == (409, True)
    assert (await door.run(simulator.image("busybox"), "true", Labels=LABELS)).code == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/containers/json"), ("POST", "/containers/x/stop"), ("GET", "/containers/x/logs"), ("GET", "/x")],
)
async def test_htcondor_is_served_nothing_that_it_does_not_ask_for(door: Client, method: str, path: str) -> None:
    answer = await door.ask(method, path)
    assert answer.status == 501
    assert answer.message.startswith(f"k8spilot does not serve {method} ")
    assert answer.message.endswith(path)


@pytest.mark.parametrize("option", [{"HostConfig": {"NetworkMode": "none"}}, {"Tty": True}, {"HostConfig": 7}], ids=str)
async def test_a_job_that_is_refused_after_its_pull_leaves_the_slot_idle(
    door: Client, simulator: Simulated, option: dict[str, Any]
) -> None:
    image = simulator.image("busybox")
    await door.pull(image)
    await simulator.cluster.server.until(lambda pod: payload_image(pod).startswith(image))
    body = {"Image": image, "Cmd": ["true"], "Labels": LABELS, **option}
    assert (await door.ask("POST", "/containers/create", body, {"name": unique_name()})).status in (400, 409)
    found = await asyncio.to_thread(status.query, str(simulator.cluster.settings.socket))
    assert found["slots"][0]["state"] == "idle"


async def test_the_next_job_takes_the_slot_from_what_was_created_by_hand(door: Client, simulator: Simulated) -> None:
    await simulator.create(simulator.image("debian"), "true", name="by-hand")
    assert (await door.run(simulator.image("busybox"), "true", Labels=LABELS)).code == 0
    assert (await simulator.ask("GET", "/containers/by-hand/json")).status == 404


async def test_a_container_that_outlives_its_starter_is_removed(
    door: Client, simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The startd has some time to remove it itself."""
    monkeypatch.setattr(htcondor_socket, "_STARTD_SECONDS", 0.3)
    with subprocess.Popen(["sleep", "60"]) as starter:  # noqa: ASYNC220
        name = f"HTCJob1_0_slot1_PID{starter.pid}"
        job = await door.begin_shell(simulator.image("busybox"), "echo ready; sleep 60", name=name, Labels=LABELS)
        await job.until_output(b"ready")
        starter.kill()

    async def is_removed() -> bool:
        return (await simulator.ask("GET", f"/containers/{name}/json")).status == 404

    await eventually(is_removed)

    async with asyncio.timeout(10):  # its name is free before its job has ended
        await asyncio.wait([job.waiting])
    assert await simulator.processes() == []


async def test_a_container_whose_starter_lives_is_left_alone(
    door: Client, simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(htcondor_socket, "_STARTD_SECONDS", 0.0)
    assert (await door.shell(simulator.image("busybox"), "sleep 0.5; exit 3", Labels=LABELS)).code == 3
