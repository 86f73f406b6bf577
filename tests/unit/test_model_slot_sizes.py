"""Sizes of the payload containers of a partitionable slot."""

import hypothesis
from hypothesis import strategies as some

from k8spilot.kube.resize import Room, limits_of, wanted_size
from k8spilot.model.slot_sizes import IDLE, Size, resized, total
from tests.fuzz.drawing import drawn

ROOM = Size(4000, 4096)


def test_a_container_that_has_the_size_already_needs_no_change() -> None:
    now = {"a": Size(1000, 1024), "b": Size(3000, 3000)}
    assert resized(now, {"a": Size(1000, 1024)}, ROOM) == {}


def test_what_is_nobodys_is_given_first() -> None:
    now = {"a": IDLE, "b": Size(1000, 1024)}
    assert resized(now, {"a": Size(2000, 2048)}, ROOM) == {"a": Size(2000, 2048)}


def test_a_container_without_a_job_becomes_idle_when_its_room_is_needed() -> None:
    now = {"a": IDLE, "b": Size(1000, 1024), "c": Size(2000, 1024)}
    assert resized(now, {"a": Size(2000, 2048)}, ROOM) == {"a": Size(2000, 2048), "c": IDLE}


def test_a_container_with_a_job_keeps_its_size() -> None:
    now = {"a": IDLE, "b": Size(3500, 1024)}
    assert resized(now, {"a": Size(1000, 1024), "b": Size(3500, 1024)}, ROOM) is None


def test_jobs_that_begin_at_the_same_moment_change_places_in_one_change() -> None:
    now = {"a": Size(3000, 3000), "b": Size(1000, 1000)}
    reserved = {"a": Size(1000, 1000), "b": Size(3000, 3000)}
    assert resized(now, reserved, ROOM) == reserved


sizes = some.builds(Size, some.integers(IDLE.cpu, 5000), some.integers(IDLE.memory, 5000))


@drawn(100, found=some.lists(some.tuples(sizes, some.none() | sizes), min_size=1, max_size=8))
def test_jobs_get_their_sizes_whenever_there_is_room_and_nothing_else_changes_without_need(
    found: list[tuple[Size, Size | None]],
) -> None:
    now = {f"payload-{number}": size for number, (size, _) in enumerate(found)}
    reserved = {f"payload-{number}": size for number, (_, size) in enumerate(found) if size is not None}
    room = total(now.values())
    changes = resized(now, reserved, room)
    least = total([reserved.get(name, IDLE) for name in now])
    assert (changes is not None) == least.fits_in(room)
    if changes is not None:
        after = {**now, **changes}
        assert total(after.values()).fits_in(room)
        assert all(after[name] == reserved.get(name, IDLE) for name in changes)
        assert all(after[name] == size for name, size in reserved.items())
        if total({**now, **reserved}.values()).fits_in(room):
            assert set(changes) <= set(reserved)


@drawn(
    100,
    number=some.integers(1, 64),
    share=some.builds(Size, some.integers(1, 9000), some.integers(1, 9000)),
    part=some.floats(0.01, 1),
    data=some.data(),
)
def test_requests_of_all_containers_are_no_more_than_the_pods_whatever_part_of_the_limits_they_are(
    number: int, share: Size, part: float, data: some.DataObject
) -> None:
    limits = total([share + IDLE] * number)
    room = Room(limits, Size(max(int(limits.cpu * part), 1), max(int(limits.memory * part), 1)))
    busy = data.draw(some.integers(1, number))
    whole = limits - total([IDLE] * (number - busy))
    parts = [Size(whole.cpu // busy, whole.memory // busy)] * busy + [IDLE] * (number - busy)
    assert total(map(room.requested, parts)).fits_in(room.requests)


def written(size: Size) -> dict[str, str]:
    return {"cpu": f"{size.cpu}m", "memory": f"{size.memory}Mi"}


@drawn(
    100,
    cpu=some.integers(1, 64).map(lambda cpus: cpus * 1000),
    memory=some.integers(IDLE.memory, 5000),
    requests=some.builds(Size, some.integers(1, 64080), some.integers(1, 5000)),
)
def test_the_size_of_a_job_is_read_from_the_pod_as_it_was_requested_however_small_the_requests_are(
    cpu: int, memory: int, requests: Size
) -> None:
    size, shared = Size(cpu, memory), Room(Size(64080, 5000), requests)
    resources = {"limits": written(limits_of(size)), "requests": written(shared.requested(size))}
    pod = {"spec": {"containers": [{"name": "payload-1", "resources": resources}]}}
    hypothesis.assume(shared.requested(size) != shared.requested(IDLE) or memory != IDLE.memory)
    assert wanted_size(pod, "payload-1", shared) == size
