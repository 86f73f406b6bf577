"""A pod with several payload containers: each slot has its own, and neighbours do not notice each other."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from k8spilot.common import pilot_api
from k8spilot.common.errors import ClusterRefused
from k8spilot.kube import kubelet_work
from k8spilot.kube.own_pod import Sidecar
from k8spilot.payload.binding import binder
from tests.engine.client import Client
from tests.engine.rings import Simulated, eventually, several_slots
from tests.simulator.pod import payload_image
from tests.simulator.programs import Programs


@pytest.fixture
async def slots(programs: Programs) -> AsyncIterator[list[Simulated]]:
    async with several_slots(programs, 2) as found:
        yield found


@pytest.mark.slow
async def test_jobs_run_side_by_side_each_as_a_user_and_with_folders_of_its_own(slots: list[Simulated]) -> None:
    script = "echo ready; touch /tmp/mine /var/tmp/mine; sleep 1; id -u; ls /tmp /var/tmp /var/lib/condor/execute"
    jobs = [await slot.begin_shell(slot.image("debian"), script) for slot in slots]
    results = [await job.result() for job in jobs]
    uids = [slot.uid for slot in slots[0].cluster.settings.slots]
    assert len(set(uids)) == 2
    for result, uid, name in zip(results, uids, ("payload-1", "payload-2"), strict=True):
        assert result.stdout.decode().split() == [
            "ready", str(uid), "/tmp:", "mine", "/var/lib/condor/execute:", name, "/var/tmp:", "mine"
        ]  # fmt: skip
    first, second = (result.stdout.split(b"\n")[1] for result in results)
    assert first != second


async def test_each_docker_socket_shows_its_own_slot_only(slots: list[Simulated]) -> None:
    job = await slots[0].begin_shell(slots[0].image("busybox"), "echo ready; exec sleep 60", name="neighbour")
    await job.until_output(b"ready")
    assert [len(await slot.containers()) for slot in slots] == [1, 0]
    assert (await slots[1].ask("GET", "/containers/neighbour/json")).status == 404
    assert (await slots[1].ask("POST", "/containers/neighbour/kill")).status == 404


async def test_the_pilots_own_socket_names_the_slots_sockets(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    async with Client(cluster.settings.socket) as client:
        answer = await client.ask("GET", "/containers/json")
        assert (answer.status, str(cluster.settings.slots[1].socket) in answer.message) == (400, True)
        assert (await client.ask("GET", "/_ping")).status == 200
        found = (await client.ask("GET", pilot_api.STATUS, version="")).json
    assert [(one["name"], one["container"], one["state"]) for one in found["slots"]] == [
        ("slot1", "payload-1", "idle"), ("slot2", "payload-2", "idle")
    ]  # fmt: skip


@pytest.mark.slow
async def test_a_job_that_kills_all_that_it_can_kills_no_neighbour(slots: list[Simulated]) -> None:
    neighbour = await slots[1].begin_shell(slots[1].image("busybox"), "echo ready; sleep 3; exit 7")
    await neighbour.until_output(b"ready")
    killer = await slots[0].begin_attack(slots[0].image("debian"), "kill -KILL -1; sleep 60")
    assert (await killer.result()).error
    await slots[0].remove(killer.name)
    assert (await slots[0].shell(slots[0].image("busybox"), "exit 3")).code == 3
    assert (await neighbour.result()).code == 7


@pytest.mark.slow
async def test_the_next_job_of_a_slot_removes_what_its_last_one_left_and_nothing_of_a_neighbour(
    slots: list[Simulated],
) -> None:
    mark = f"k8spilot-test-{os.getpid()}"
    neighbour = await slots[1].begin_shell(
        slots[1].image("debian"), f"touch /tmp/mine /dev/shm/{mark}-2; echo ready; sleep 4; ls /tmp /dev/shm; exit 7"
    )
    await neighbour.until_output(b"ready")
    await slots[0].shell(slots[0].image("debian"), f"touch /tmp/mine /dev/shm/{mark}-1; sleep 31557 & exit 0")
    assert (await slots[0].ask("GET", pilot_api.NEXT_JOB, version="")).status == 200
    found = (await slots[0].shell(slots[0].image("debian"), "ls /tmp /dev/shm")).stdout.decode()
    assert f"{mark}-1" not in found
    assert "mine" not in found
    result = await neighbour.result()
    assert (result.code, "mine" in result.stdout.decode(), f"{mark}-2" in result.stdout.decode()) == (7, True, True)


@pytest.mark.slow
async def test_a_job_whose_neighbours_image_is_pulled_for_long_starts_when_the_node_shows_it(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_work, "_LONG_SECONDS", 0.2)
    async with several_slots(programs, 2) as slots:
        cluster = slots[0].cluster
        pulled = cluster.kubelets[0].hold(slots[0].image("debian").rpartition(":")[0])
        show_running = cluster.kubelets[1]._show_running
        with monkeypatch.context() as limits:
            limits.setattr(binder, "_CONFIRM_SECONDS", 1.0)
            limits.setattr(binder, "_AGAIN_SECONDS", 1.0)
            limits.setattr(cluster.kubelets[1], "_show_running", lambda: None)  # before the pull, it would be shown
            name = await slots[1].create(slots[1].image("busybox"), "sh", "-c", "exit 7")
            neighbour = asyncio.create_task(slots[0].shell(slots[0].image("debian"), "exit 3"))
            await eventually(lambda: is_pulling(slots[0]))
            show_running()  # when the pull ends
            starting = asyncio.create_task(slots[1].start(name))
            await asyncio.sleep(4.0)
            assert not starting.done()
        pulled.set()
        assert (await (await starting).result()).code == 7
        assert (await neighbour).code == 3


async def is_pulling(slot: Simulated) -> bool:
    """Whether the kubelet of the first payload container is about to pull, or does."""
    return slot.cluster.kubelets[0].container is None


@pytest.mark.slow
async def test_an_engine_that_starts_again_gives_each_slots_job_back(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    jobs = [await slot.begin_shell(slot.image("busybox"), "echo ready; exec sleep 60") for slot in slots]
    for job in jobs:
        await job.until_output(b"ready")
    await cluster.restart_pilot()
    for job in jobs:
        job.waiting.cancel()
    assert [await slot.containers() for slot in slots] == [[], []]
    results = await asyncio.gather(*(slot.shell(slot.image("busybox"), "exit 5") for slot in slots))
    assert [result.code for result in results] == [5, 5]
    assert cluster.processes() == []


@pytest.mark.slow
async def test_each_change_of_an_image_is_named_for_its_own_container(slots: list[Simulated]) -> None:
    codes = [await slot.shell(slot.image("busybox"), f"exit {number}") for number, slot in enumerate(slots, 1)]
    assert [result.code for result in codes] == [1, 2]

    async def all_idle() -> bool:
        pod = await slots[0].pod()
        images = [one["image"] for one in pod["spec"]["initContainers"] if one["name"].startswith("payload")]
        return all("k8spilot" in image for image in images)

    await eventually(all_idle)
    annotations = (await slots[0].pod())["metadata"]["annotations"]
    assert {"k8spilot/bind-1", "k8spilot/bind-2"} <= set(annotations)
    assert annotations["k8spilot/bind-1"] != annotations["k8spilot/bind-2"]
    assert all(kubelet.back_offs == 0 for kubelet in slots[0].cluster.kubelets)


async def test_first_binds_at_the_same_moment_keep_each_others_names(slots: list[Simulated]) -> None:
    """The pod has no annotations before: each of two patches would make the whole map."""
    results = await asyncio.gather(*(slot.shell(slot.image("busybox"), "exit 3") for slot in slots))
    assert [result.code for result in results] == [3, 3]
    assert {"k8spilot/bind-1", "k8spilot/bind-2"} <= set((await slots[0].pod())["metadata"]["annotations"])


@pytest.mark.slow
async def test_the_pod_costs_as_much_as_its_busiest_slot(slots: list[Simulated]) -> None:
    owner = {"kind": "ReplicaSet", "controller": True}
    await slots[0].cluster.server.update(lambda pod: pod["metadata"].update(ownerReferences=[owner]))
    busy = await slots[1].begin_shell(slots[1].image("busybox"), "echo ready; exec sleep 60")
    await busy.until_output(b"ready")
    await slots[0].shell(slots[0].image("busybox"), "true")

    async def is_idle() -> bool:
        pod = await slots[0].pod()
        return "k8spilot" in next(one["image"] for one in pod["spec"]["initContainers"] if one["name"] == "payload-1")

    await eventually(is_idle)
    cost = "controller.kubernetes.io/pod-deletion-cost"
    assert (await slots[0].pod())["metadata"]["annotations"][cost] == "100"


async def test_changes_that_come_while_the_server_answers_go_in_one_patch(programs: Programs) -> None:
    async with several_slots(programs, 4) as slots:
        server, pod = slots[0].cluster.server, slots[0].cluster.pilot.pod
        sidecars = [Sidecar(f"payload-{number}", f"k8spilot/bind-{number}") for number in (1, 2, 3, 4)]
        before, images = server.requests["patch"], [f"registry.test:5000/busybox:{number}" for number in (1, 2, 3, 4)]
        changes = zip(sidecars, images, strict=True)
        await asyncio.gather(*(pod.set_image(one, image, "0" * 32) for one, image in changes))
        assert server.requests["patch"] == before + 2
        assert [payload_image(server.pod, one.name) for one in sidecars] == images


async def test_of_changes_that_go_together_the_one_that_is_not_allowed_is_refused_alone(slots: list[Simulated]) -> None:
    server, pod = slots[0].cluster.server, slots[0].cluster.pilot.pod
    sidecars = [Sidecar(f"payload-{number}", f"k8spilot/bind-{number}") for number in (1, 2)]
    server.forbidden_image = "evil"
    outcomes = await asyncio.gather(
        pod.set_image(sidecars[0], "registry.test:5000/evil:a", "0" * 32),
        pod.set_image(sidecars[1], "registry.test:5000/busybox:b", "0" * 32),
        return_exceptions=True,
    )
    assert [type(one) for one in outcomes] == [ClusterRefused, dict]
    assert payload_image(server.pod, "payload-2") == "registry.test:5000/busybox:b"
