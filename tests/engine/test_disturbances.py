"""Disturbances that no job causes: changes of the pod by hand, a lost idle image, a kubelet that does nothing."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8spilot.payload.binding import binder
from tests.engine.client import Answer
from tests.engine.rings import Engine, Simulated, set_image, simulated
from tests.simulator.api_server import ApiServer
from tests.simulator.pod import payload_image, payload_status
from tests.simulator.programs import Programs

JOB: dict[str, Any] = {"Labels": {"org.htcondorproject": "True"}}
IDLE = "registry.test:5000/k8spilot"


async def _goes_back_to_the_queue(engine: Engine, name: str, words: str) -> None:
    """HTCondor holds a job for an error of `create` or any text in State.Error; a 500 to inspect gives it back."""
    await engine.ask("POST", f"/containers/{name}/start")
    inspected = await engine.ask("GET", f"/containers/{name}/json")
    assert (inspected.status, words in inspected.message) == (500, True), inspected.message
    await engine.remove(name)


async def _asked_for(server: ApiServer, image: str) -> None:
    await server.until(lambda pod: payload_image(pod).startswith(image))


@asynccontextmanager
async def _stubborn(server: ApiServer, image: str) -> AsyncIterator[None]:
    """Set `image` whenever the payload container has another one."""

    async def insist() -> None:
        while True:
            await server.until(lambda pod: not payload_image(pod).startswith(image), seconds=1e9)
            await set_image(server, f"{image}-{uuid.uuid4().hex[:8]}")

    insisting = asyncio.create_task(insist())
    try:
        yield
    finally:
        insisting.cancel()


async def test_an_image_that_somebody_sets_during_a_bind_is_changed_again(simulator: Simulated) -> None:
    server, debian = simulator.cluster.server, simulator.image("debian")
    pulled = simulator.cluster.kubelet.hold(debian.rpartition(":")[0])
    running = asyncio.create_task(simulator.shell(debian, "echo right; exit 3", **JOB))
    await _asked_for(server, debian)
    by_hand = f"{simulator.image('busybox')}-by-hand"
    await set_image(server, by_hand)
    await server.until(lambda pod: payload_image(pod) != by_hand)
    pulled.set()
    result = await running
    assert (result.code, result.stdout) == (3, b"right\n")


def _of_the_account(server: ApiServer) -> list[bool]:
    """Of each patch so far, whether it ends the account of who manages the pod's fields."""
    return [any(one["path"] == "/metadata/managedFields" for one in changes) for changes in server.patches]


async def test_the_account_of_who_manages_the_pods_fields_ends_with_the_first_change(simulator: Simulated) -> None:
    """The API server would go on with it at each change, which costs as much as all else of the change."""
    server = simulator.cluster.server
    before = len(server.patches)
    for _ in range(2):
        assert (await simulator.shell(simulator.image("busybox"), "echo right", **JOB)).stdout == b"right\n"
    assert "managedFields" not in server.pod["metadata"]
    assert sum(_of_the_account(server)) == 1
    assert len(server.patches) >= before + 2


async def test_a_cluster_that_wants_that_account_runs_jobs_all_the_same(programs: Programs) -> None:
    async with simulated(programs) as engine:
        server = engine.cluster.server
        server.insists = True
        for _ in range(2):
            assert (await engine.shell(engine.image("busybox"), "echo right", **JOB)).stdout == b"right\n"
        assert server.pod["metadata"]["managedFields"]
        assert _of_the_account(server).count(True) == 1


async def test_an_image_that_cannot_be_had_set_during_a_bind_harms_no_job(simulator: Simulated) -> None:
    server, debian = simulator.cluster.server, simulator.image("debian")
    pulled = simulator.cluster.kubelet.hold(debian.rpartition(":")[0])
    running = asyncio.create_task(simulator.shell(debian, "exit 3", **JOB))
    await _asked_for(server, debian)
    await set_image(server, "registry.test:5000/nothing:here")
    pulled.set()
    assert (await running).code == 3


async def test_a_job_whose_image_somebody_changes_all_the_time_goes_back_to_the_queue(simulator: Simulated) -> None:
    async with _stubborn(simulator.cluster.server, f"{simulator.image('debian')}-by-hand"):
        name = await simulator.create(simulator.image("busybox"), "true", **JOB)
        await _goes_back_to_the_queue(simulator, name, "another client changed the image")
    assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4


async def test_an_image_that_somebody_sets_before_the_start_loses_the_job_to_the_queue(simulator: Simulated) -> None:
    name = await simulator.create(simulator.image("busybox"), "true", **JOB)
    await set_image(simulator.cluster.server, f"{simulator.image('debian')}-by-hand")
    await _asked_for(simulator.cluster.server, simulator.image("debian"))
    await asyncio.sleep(0.3)  # the kubelet has done it
    await _goes_back_to_the_queue(simulator, name, "goes back to the queue")
    assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4


async def test_an_image_that_somebody_sets_between_jobs_is_of_no_account(simulator: Simulated) -> None:
    for image in (f"{simulator.image('debian')}-by-hand", "registry.test:5000/nothing:here"):
        await set_image(simulator.cluster.server, image)
        await asyncio.sleep(0.3)
        assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4


async def test_labels_annotations_and_ephemeral_containers_are_of_no_account(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; sleep 0.3; exit 5", **JOB)
    await job.until_output(b"ready")

    def decorate(pod: dict[str, Any]) -> None:
        pod["metadata"]["labels"] = {}
        pod["metadata"]["annotations"] = {"somebody": "was here"}
        pod["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox"}]
        pod["status"]["ephemeralContainerStatuses"] = [{"name": "debugger", "state": {"terminated": {"exitCode": 1}}}]

    await simulator.cluster.server.update(decorate)
    assert (await job.result()).code == 5
    await simulator.remove(job.name)
    assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4


async def test_an_idle_image_that_cannot_be_had_is_done_without(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.1, patience_seconds=5.0) as simulator:
        words = "failed to pull and unpack image: failed to do request: dial tcp: connect: connection refused"
        simulator.cluster.kubelet.fail_pulls(IDLE, words)
        for code in (3, 4):
            assert (await simulator.shell(simulator.image("busybox"), f"exit {code}", **JOB)).code == code
            await simulator.cluster.server.until(lambda pod: words in str(pod["status"]))
        refused = await _create(simulator, "registry.test:5000/nothing:here")
        assert (refused.status, "nothing" in refused.message) == (500, True), refused.message
        assert (await simulator.shell(simulator.image("busybox"), "exit 5", **JOB)).code == 5


async def test_words_about_the_idle_image_are_never_taken_for_the_jobs(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        simulator.cluster.kubelet.fail_pulls(IDLE, "unexpected status from HEAD request: 401 Unauthorized")
        simulator.cluster.kubelet.fail_pulls("registry.test:5000/debian", "manifest unknown")
        assert (await _create(simulator, simulator.image("debian"))).status == 500
        simulator.cluster.kubelet.fail_pulls("registry.test:5000/debian", "", times=0)
        for code in (3, 4):
            assert (await simulator.shell(simulator.image("debian"), f"exit {code}", **JOB)).code == code


async def test_an_idle_image_that_cannot_be_started_at_once_is_waited_for(programs: Programs) -> None:
    """The kubelet's words about it name no image, and would be taken for the next one's."""
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        kubelet = simulator.cluster.kubelet
        assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4
        kubelet.fail_pulls("registry.test:5000/debian", "manifest unknown")
        assert (await _create(simulator, simulator.image("debian"))).status == 500
        words = "failed to start containerd task: OCI runtime start failed: cannot start an already running container"
        kubelet.fail_pulls(IDLE, words, reason="RunContainerError", times=2)
        assert (await simulator.shell(simulator.image("busybox"), "exit 3", **JOB)).code == 3
        assert kubelet.failed_pulls >= 3
        assert [one.startswith(IDLE) for one in kubelet.starts[-2:]] == [True, False]


async def test_a_container_of_the_unbind_is_not_taken_for_one_of_an_image_that_cannot_be_had(
    programs: Programs,
) -> None:
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        server, kubelet = simulator.cluster.server, simulator.cluster.kubelet
        pulled = kubelet.hold(IDLE)
        assert (await simulator.shell(simulator.image("busybox"), "exit 3", **JOB)).code == 3
        await _asked_for(server, f"{IDLE}:test-")
        await asyncio.sleep(0.3)  # the kubelet has begun
        kubelet.fail_pulls("registry.test:5000/debian", "no match for platform in manifest")
        creating = asyncio.create_task(_create(simulator, simulator.image("debian")))
        await _asked_for(server, simulator.image("debian"))
        pulled.set()
        assert ((await creating).status, "no match" in (await creating).message) == (500, True)


async def test_words_about_the_image_of_the_unbind_are_never_taken_for_the_jobs(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        server = simulator.cluster.server
        pulled = simulator.cluster.kubelet.hold(IDLE)
        assert (await simulator.shell(simulator.image("busybox"), "exit 3", **JOB)).code == 3
        await _asked_for(server, f"{IDLE}:test-")
        words = f'failed to pull and unpack image "{payload_image(server.pod)}": 401 Unauthorized'
        await asyncio.sleep(0.3)  # the kubelet has begun
        running = asyncio.create_task(simulator.shell(simulator.image("debian"), "exit 4", **JOB))
        await _asked_for(server, simulator.image("debian"))

        def refuse(pod: dict[str, Any]) -> None:
            payload_status(pod)["state"] = {"waiting": {"reason": "ErrImagePull", "message": words}}

        await server.update(refuse)
        await asyncio.sleep(0.3)
        pulled.set()
        assert (await running).code == 4


async def test_an_idle_image_that_takes_long_after_a_refusal_is_waited_for(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=0.1) as simulator:
        kubelet = simulator.cluster.kubelet
        pulled = kubelet.hold(IDLE)
        kubelet.fail_pulls("registry.test:5000/debian", "manifest unknown")
        assert (await _create(simulator, simulator.image("debian"))).status == 500
        running = asyncio.create_task(simulator.shell(simulator.image("busybox"), "exit 3", **JOB))
        await _asked_for(simulator.cluster.server, IDLE)
        await asyncio.sleep(0.5)
        assert not running.done()
        pulled.set()
        assert (await running).code == 3


async def test_annotations_that_somebody_removes_are_of_no_account(simulator: Simulated) -> None:
    nothings: list[Any] = [{}, None]
    for nothing in nothings:

        def clear(pod: dict[str, Any], nothing: Any = nothing) -> None:
            pod["metadata"]["annotations"] = nothing

        running = asyncio.create_task(simulator.shell(simulator.image("busybox"), "exit 4", **JOB))
        await simulator.cluster.server.update(clear)
        assert (await running).code == 4


async def _create(engine: Engine, image: str) -> Answer:
    return await engine.ask("POST", "/containers/create", {"Image": image, "Cmd": ["true"], **JOB})


async def test_a_job_waits_for_a_kubelet_that_stands_still(simulator: Simulated) -> None:
    simulator.cluster.kubelet.stand_still()
    running = asyncio.create_task(simulator.shell(simulator.image("busybox"), "exit 3", **JOB))
    await _asked_for(simulator.cluster.server, simulator.image("busybox"))
    await asyncio.sleep(0.5)
    assert not running.done()
    simulator.cluster.kubelet.go_on()
    assert (await running).code == 3


@pytest.mark.slow
async def test_a_job_whose_kubelet_stands_still_for_too_long_goes_back_to_the_queue(programs: Programs) -> None:
    async with simulated(programs, bind_timeout_seconds=3.0) as simulator:
        simulator.cluster.kubelet.stand_still()
        name = await simulator.create(simulator.image("busybox"), "true", **JOB)
        await _goes_back_to_the_queue(simulator, name, "the node has not begun")
        simulator.cluster.kubelet.go_on()
        assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4


@pytest.mark.slow
async def test_a_job_whose_container_the_status_does_not_show_goes_back_to_the_queue(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder, "_CONFIRM_SECONDS", 0.5)
    monkeypatch.setattr(binder, "_AGAIN_SECONDS", 0.1)
    with monkeypatch.context() as overloaded:
        overloaded.setattr(simulator.cluster.kubelet, "_show_running", lambda: None)
        name = await simulator.create(simulator.image("busybox"), "true", **JOB)
        await _goes_back_to_the_queue(simulator, name, "the node may be overloaded")
    assert (await simulator.shell(simulator.image("busybox"), "exit 4", **JOB)).code == 4
