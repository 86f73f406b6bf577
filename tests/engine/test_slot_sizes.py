"""A partitionable slot: each payload container gets the size of its job, and gives it back when another needs it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from k8spilot.preflight import resizing
from k8spilot.preflight.resizing import why_equal
from tests.engine.rings import Simulated, eventually, several_slots
from tests.simulator.pod import payload_resources, payload_status
from tests.simulator.programs import Programs


@pytest.fixture
async def slots(programs: Programs) -> AsyncIterator[list[Simulated]]:
    """Four slots that have four CPUs and 1024 MiB together, and whose containers are small by now."""
    async with several_slots(programs, 4, slot_sizes="requested", idle_after_seconds=1.0) as found:
        server = found[0].cluster.server
        await server.until(
            lambda pod: all(
                payload_status(pod, slot.container).get("resources", {}).get("limits", {}).get("memory") == "32Mi"
                for slot in found[0].cluster.settings.slots
            )
        )
        yield found


def sized(cpus: int, mebibytes: int) -> dict[str, Any]:
    """Options of HTCondor's `docker create` for a slot of this size."""
    sizes = {"CpuShares": 100 * cpus, "Memory": mebibytes << 20}
    return {"HostConfig": sizes, "Labels": {"org.htcondorproject": "True"}}


async def begin(slot: Simulated, cpus: int, mebibytes: int, script: str = "echo ready; exec sleep 60") -> str:
    """Start a job of that size; its name."""
    job = await slot.begin_shell(slot.image("busybox"), script, **sized(cpus, mebibytes))
    await job.until_output(b"ready")
    return job.name


async def limits(slot: Simulated, number: int) -> tuple[str, str]:
    """CPU and memory of a payload container, as spec and status have them."""
    name = f"payload-{number}"

    def agree(pod: dict[str, Any]) -> bool:
        return bool(payload_status(pod, name)["resources"] == payload_resources(pod, name))

    wanted = payload_resources(await slot.cluster.server.until(agree), name)
    return wanted["limits"]["cpu"], wanted["limits"]["memory"]


async def test_a_job_starts_when_its_container_has_the_jobs_size(slots: list[Simulated]) -> None:
    await begin(slots[1], 2, 512)
    assert await limits(slots[1], 2) == ("2000m", "512Mi")
    assert payload_resources(slots[0].cluster.server.pod, "payload-2")["requests"]["cpu"] == "2000m"


async def test_one_job_can_have_all_and_then_each_slot_its_part(slots: list[Simulated]) -> None:
    name = await begin(slots[0], 4, 1024)
    assert await limits(slots[0], 1) == ("4000m", "1024Mi")
    assert await limits(slots[0], 3) == ("1000m", "32Mi")
    await slots[0].remove(name)
    for number, slot in enumerate(slots, 1):
        await begin(slot, 1, 256)
        assert await limits(slot, number) == ("1000m", "256Mi")


async def test_a_job_that_is_smaller_than_the_last_one_in_its_container_gets_its_own_size(
    slots: list[Simulated],
) -> None:
    await slots[0].shell(slots[0].image("busybox"), "exit 0", **sized(2, 700))
    await begin(slots[0], 1, 100)
    assert await limits(slots[0], 1) == ("1000m", "100Mi")


async def test_a_container_without_a_job_gives_back_what_it_had(slots: list[Simulated]) -> None:
    async with asyncio.timeout(20):
        await slots[0].shell(slots[0].image("busybox"), "exit 0", **sized(2, 700))
        await slots[0].cluster.server.until(
            lambda pod: payload_status(pod, "payload-1")["resources"]["limits"]["memory"] == "32Mi"
        )


@pytest.mark.slow
async def test_room_that_another_job_takes_from_an_idle_container_ends_no_later_job_in_it(
    slots: list[Simulated],
) -> None:
    """The idle image is bound once, at that time, and not again when it would have been without the other job."""
    await slots[0].shell(slots[0].image("busybox"), "exit 0", **sized(3, 700))
    await begin(slots[1], 3, 700)
    job = await slots[0].begin_shell(slots[0].image("busybox"), "sleep 3; exit 7", **sized(1, 100))
    assert (await job.result()).code == 7


async def test_a_job_without_cpus_has_its_memory(slots: list[Simulated]) -> None:
    await begin(slots[0], 0, 300)
    assert await limits(slots[0], 1) == ("1000m", "300Mi")


async def test_a_container_of_a_job_of_unknown_size_is_not_made_smaller(slots: list[Simulated]) -> None:
    labels = sized(1, 1)["Labels"]
    job = await slots[0].begin_shell(slots[0].image("busybox"), "echo ready; exec sleep 60", Labels=labels)
    await job.until_output(b"ready")
    await begin(slots[1], 3, 700)
    assert (await slots[0].inspect(job.name))["State"]["Running"]


async def test_a_resize_that_fails_once_is_repeated(slots: list[Simulated]) -> None:
    server = slots[0].cluster.server
    before, server.resize_refusal = server.requests["resize"], (500, "etcdserver: leader changed")
    starting = asyncio.create_task(begin(slots[0], 2, 512))
    await eventually(lambda: has_asked(slots[0], before))
    server.resize_refusal = None
    await starting


async def has_asked(slot: Simulated, before: int) -> bool:
    """Whether the pilot has tried to resize containers more than `before` times."""
    return slot.cluster.server.requests["resize"] > before


async def test_sizes_that_another_client_has_changed_are_read_again(slots: list[Simulated]) -> None:
    await begin(slots[0], 1, 100)

    def grow(pod: dict[str, Any]) -> None:
        found = next(one for one in pod["spec"]["initContainers"] if one["name"] == "payload-2")
        for kind in ("requests", "limits"):
            found["resources"][kind] |= {"cpu": "2", "memory": "600Mi"}

    await slots[0].cluster.server.update(grow)
    await begin(slots[1], 1, 200)
    assert await limits(slots[1], 2) == ("1000m", "200Mi")


async def test_a_container_that_starts_with_more_than_the_size_of_its_job_is_made_anew(slots: list[Simulated]) -> None:
    """The API server accepts the size only when the container runs, with what an earlier job had."""
    server = slots[0].cluster.server
    await slots[0].shell(slots[0].image("busybox"), "exit 0", **sized(2, 700))
    before = payload_status(server.pod, "payload-1")["restartCount"]
    server.resize_refusal = (500, "etcdserver: leader changed")
    starting = asyncio.create_task(begin(slots[0], 1, 100))
    shown = await server.until(lambda pod: payload_status(pod, "payload-1")["restartCount"] > before)
    assert payload_status(shown, "payload-1")["resources"]["limits"]["memory"] == "700Mi"
    server.resize_refusal = None
    await starting
    assert await limits(slots[0], 1) == ("1000m", "100Mi")


async def test_the_answer_of_the_trial_holds_for_the_pods_life(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    cluster.server.resize_refusal = (403, "not now")
    first = await why_equal(cluster.settings, cluster.api, runs=False)
    cluster.server.resize_refusal = None
    assert await why_equal(cluster.settings, cluster.api, runs=False) == first != ""


async def test_consecutive_jobs_of_one_size_need_one_change(slots: list[Simulated]) -> None:
    before = slots[0].cluster.server.requests["resize"]
    for _ in range(3):
        result = await slots[2].shell(slots[2].image("busybox"), "exit 3", **sized(2, 600))
        assert result.code == 3
    assert slots[0].cluster.server.requests["resize"] == before + 1


async def test_jobs_that_begin_together_get_each_its_own_size(slots: list[Simulated]) -> None:
    sizes = [(1, 100), (1, 200), (1, 300), (1, 400)]
    await asyncio.gather(*(begin(slot, *size) for slot, size in zip(slots, sizes, strict=True)))
    found = [(await limits(slots[0], number))[1] for number in range(1, 5)]
    assert found == ["100Mi", "200Mi", "300Mi", "400Mi"]


@pytest.mark.slow
async def test_a_job_for_which_the_others_leave_no_room_goes_back_and_they_run_on(slots: list[Simulated]) -> None:
    name = await begin(slots[0], 3, 512)
    job = await slots[1].begin_shell(slots[1].image("busybox"), "exit 0", **sized(2, 100))
    assert "no room" in (await job.result()).error
    assert await limits(slots[0], 1) == ("3000m", "512Mi")
    assert (await slots[0].inspect(name))["State"]["Running"]


async def test_a_job_does_not_start_before_the_node_has_given_what_was_promised(slots: list[Simulated]) -> None:
    slots[0].cluster.kubelets[0].resizes = False
    starting = asyncio.create_task(begin(slots[0], 2, 512))
    await slots[0].cluster.server.until(lambda pod: payload_resources(pod, "payload-1")["limits"]["cpu"] == "2000m")
    await asyncio.sleep(0.5)
    assert not starting.done()
    slots[0].cluster.kubelets[0].show_size()
    await starting


@pytest.mark.slow
async def test_a_size_that_the_node_is_about_to_take_away_is_not_that_of_the_next_job(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    await slots[0].shell(slots[0].image("busybox"), "exit 0", **sized(2, 512))
    for kubelet in cluster.kubelets:
        kubelet.lags = True
    await cluster.server.until(lambda pod: payload_resources(pod, "payload-1")["limits"]["memory"] == "32Mi")
    starting = asyncio.create_task(begin(slots[0], 2, 512))
    pod = await cluster.server.until(lambda pod: payload_resources(pod, "payload-1")["limits"]["memory"] == "512Mi")
    assert payload_status(pod, "payload-1")["resources"]["limits"]["memory"] == "512Mi", "of the job before"
    await asyncio.sleep(0.5)
    assert not starting.done()
    for kubelet in cluster.kubelets:
        kubelet.lags = False
        kubelet.show_size()
    await starting


async def test_a_refused_resize_returns_the_job_with_the_servers_words(slots: list[Simulated]) -> None:
    slots[0].cluster.server.resize_refusal = (403, "pods/resize is forbidden")
    job = await slots[0].begin_shell(slots[0].image("busybox"), "exit 0", **sized(3, 100))
    assert "pods/resize is forbidden" in (await job.result()).error
    slots[0].cluster.server.resize_refusal = None
    assert (await slots[0].shell(slots[0].image("busybox"), "exit 4", **sized(3, 100))).code == 4


async def test_the_trial_at_the_start_finds_that_containers_can_be_resized(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    assert await why_equal(cluster.settings, cluster.api, runs=False) == ""


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ((403, 'cannot patch resource "pods/resize"'), 'cannot patch resource "pods/resize"'),
        ((404, "the server could not find the requested resource"), "could not find the requested resource"),
        ((422, "Pod running on node without support for resize"), "without support for resize"),
    ],
)
async def test_the_trial_says_in_the_servers_words_why_slots_are_equal(
    slots: list[Simulated], refusal: tuple[int, str], reason: str
) -> None:
    cluster = slots[0].cluster
    cluster.server.resize_refusal = refusal
    assert reason in await why_equal(cluster.settings, cluster.api, runs=False)


@pytest.mark.slow
async def test_the_trial_says_in_the_kubelets_words_why_slots_are_equal(
    slots: list[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizing, "_TRIAL_SECONDS", 2.0)
    cluster = slots[0].cluster
    cluster.kubelets[0].resizes = False
    assert "Deferred: Node didn't have enough" in await why_equal(cluster.settings, cluster.api, runs=False)


async def test_a_pod_without_resources_of_its_own_has_equal_slots(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    await cluster.server.update(lambda pod: pod["spec"].pop("resources"))
    assert "the pod has no resources of its own" in await why_equal(cluster.settings, cluster.api, runs=False)


async def test_a_check_beside_a_running_pilot_resizes_nothing(slots: list[Simulated]) -> None:
    cluster = slots[0].cluster
    before = cluster.server.pod["spec"]
    assert await why_equal(cluster.settings, cluster.api, runs=True) == ""
    assert cluster.server.pod["spec"] == before
