"""Signals for jobs that do not run yet: HTCondor sends one and does not look at the answer."""

import asyncio
from typing import Any

import pytest

from tests.engine.client import unique_name
from tests.engine.rings import Engine, Simulated, eventually, patched

JOB: dict[str, Any] = {"Labels": {"org.htcondorproject": "True"}}


async def _ends_as_killed(engine: Engine, name: str, code: int) -> None:
    """As the starter goes on: start -a, inspect, rm."""
    result = await (await engine.start(name)).result()
    assert (result.code, result.stdout, result.error) == (code, b"", "")
    state = (await engine.inspect(name))["State"]
    assert (state["Running"], state["ExitCode"], state["OOMKilled"], state["Error"]) == (False, code, False, "")
    await engine.remove(name)


@pytest.mark.parametrize(("signal", "code"), [("15", 143), ("9", 137)])
async def test_a_job_that_was_created_ends_without_having_run(engine: Engine, signal: str, code: int) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "echo ran", **JOB)
    await engine.call("POST", f"/containers/{name}/kill", params={"signal": signal})
    await _ends_as_killed(engine, name, code)
    assert (await engine.shell(engine.image("busybox"), "exit 3", **JOB)).code == 3


async def test_a_container_of_somebody_else_is_not_running_yet_as_with_docker(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    assert (await engine.ask("POST", f"/containers/{name}/kill")).status == 409


async def test_a_job_whose_image_is_being_bound_is_created_and_ends(simulator: Simulated) -> None:
    image, name = simulator.image("busybox"), unique_name()
    pulled = simulator.cluster.kubelet.hold(image.rpartition(":")[0])
    creating = asyncio.ensure_future(simulator.create(image, "true", name=name, **JOB))
    await eventually(lambda: patched(simulator))
    await simulator.call("POST", f"/containers/{name}/kill", params={"signal": "15"})
    assert await creating == name
    await _ends_as_killed(simulator, name, 143)
    pulled.set()
    assert (await simulator.shell(image, "exit 4", **JOB)).code == 4


async def test_a_client_that_goes_away_during_create_leaves_the_slot_free(simulator: Simulated) -> None:
    image = simulator.image("busybox")
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25):
        creating = asyncio.ensure_future(simulator.create(image, "true", **JOB))
        await asyncio.sleep(delay)
        creating.cancel()
        await asyncio.wait([creating])
        await simulator.remove_all()
    assert (await simulator.shell(image, "exit 4", **JOB)).code == 4


async def test_a_job_whose_image_is_being_pulled_is_remembered_and_the_pull_ends(simulator: Simulated) -> None:
    image, name = simulator.image("busybox"), unique_name()
    pulled = simulator.cluster.kubelet.hold(image.rpartition(":")[0])
    pulling = asyncio.ensure_future(simulator.pull(image))
    await eventually(lambda: patched(simulator))
    await simulator.call("POST", f"/containers/{name}/kill", params={"signal": "9"})
    await pulling
    await simulator.create(image, "true", name=name, **JOB)
    await _ends_as_killed(simulator, name, 137)
    pulled.set()
    assert (await simulator.shell(image, "exit 4", **JOB)).code == 4


async def test_a_signal_for_a_job_of_the_past_does_not_end_the_next_ones_pull(simulator: Simulated) -> None:
    image = simulator.image("busybox")
    first = await simulator.create(image, "true", **JOB)
    await (await simulator.start(first)).result()
    pulled = simulator.cluster.kubelet.hold(simulator.image("debian").rpartition(":")[0])
    assert (await simulator.ask("POST", f"/containers/{first}/kill")).status == 409
    await simulator.remove(first)
    pulled.set()
    assert (await simulator.shell(simulator.image("debian"), "exit 5", **JOB)).code == 5


async def test_a_signal_for_nobody_is_not_found(engine: Engine) -> None:
    assert (await engine.ask("POST", "/containers/HTCJob99_0_slot1_PID1/kill")).status == 404


async def test_a_pull_lasts_until_the_image_is_there_but_not_the_second_time(simulator: Simulated) -> None:
    image = simulator.image("busybox")
    repository = image.rpartition(":")[0]
    pulled = simulator.cluster.kubelet.hold(repository)
    pulling = asyncio.ensure_future(simulator.pull(image))
    await eventually(lambda: patched(simulator))
    await asyncio.sleep(0.2)
    assert not pulling.done()
    pulled.set()
    await pulling
    assert (await simulator.shell(image, "exit 6", **JOB)).code == 6
    again = simulator.cluster.kubelet.hold(repository)
    again.clear()
    await simulator.pull(image)
    again.set()
    assert (await simulator.shell(image, "exit 7", **JOB)).code == 7


async def test_a_container_that_removes_itself_is_gone_at_its_end(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "exit 8", HostConfig={"AutoRemove": True})
    removed = await engine.begin_wait(name, "removed")
    await engine.call("POST", f"/containers/{name}/start")
    assert (await removed).json["StatusCode"] == 8
    assert await engine.containers() == []


async def test_published_ports_are_the_containers_own(engine: Engine) -> None:
    script = "echo ready; exec sleep 60"  # whether somebody listens is the job's own affair, too
    host = {"PortBindings": {"8123/tcp": [{"HostIp": "", "HostPort": ""}]}}
    job = await engine.begin_shell(engine.image("busybox"), script, HostConfig=host, ExposedPorts={"8123/tcp": {}})
    await job.until_output(b"ready")
    ports = (await engine.inspect(job.name))["NetworkSettings"]["Ports"]
    assert ports == {"8123/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8123"}]}  # noqa: S104
    await job.kill("KILL")
    await job.result()
    assert (await engine.inspect(job.name))["NetworkSettings"]["Ports"] == {}


@pytest.mark.parametrize("port", ["8123/tcp", "0/tcp", "x", "70000/tcp"])
async def test_ports_that_cannot_be_had_are_refused(engine: Engine, port: str) -> None:
    host = {"PortBindings": {port: [{"HostPort": "99"}]}}
    body = {"Image": engine.image("busybox"), "Cmd": ["true"], "HostConfig": host}
    answer = await engine.ask("POST", "/containers/create", body)
    assert answer.status == 409
    assert port in answer.message
