"""A pilot pod with several payload containers: several jobs at a time, each for itself."""

from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS
from tests.e2e.pool import Pool, ads, result, until

SLOTS = 3
AGAIN_SECONDS = 120.0
LIMITS = {"cpu": str(SLOTS), "memory": f"{SLOTS * 160}Mi", "ephemeral-storage": f"{SLOTS * 1300}Mi"}


def deploy(lab: Lab, name: str, **environment: str) -> None:
    """Deploy a pilot with several slots, which share what the pod has."""
    change = {"op": "replace", "path": "/spec/initContainers/1/resources/limits", "value": LIMITS}
    pilot.deploy(
        lab,
        name,
        {"K8SPILOT_IDLE_AFTER_SECONDS": "1", **environment},
        {"patches": [pilot.change(change)]},
        slots=SLOTS,
        shares=pilot.Shares(equal=True),
    )
    jobs.wait_in_pool(lab, name)


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with several slots."""
    name = f"e2e-{owner}-slots"
    deploy(lab, name)
    yield name
    pilot.discard(lab, name)


def slots(pool: Pool) -> list[list[str]]:
    """Name, state and memory of each slot, as the pool's users see them."""
    query = ["condor_status", "-constraint", f'K8SPodName == "{pool.pod}"', "-af", "SlotID", "State", "Memory", "Cpus"]
    return [line.split() for line in pool.lab.access_point("alice", query).splitlines()]


def test_jobs_of_several_users_run_side_by_side_each_as_a_user_of_its_own(pool: Pool) -> None:
    unclaimed = [[str(number), "Unclaimed", "160", "1"] for number in range(1, SLOTS + 1)]
    until(lambda: sorted(slots(pool)) == unclaimed, "the pool has all slots")
    script = "cat in; id -u; ls /tmp /var/lib/condor/execute; touch /tmp/x; sleep 20; cat in >out; exit 4"
    files: dict[str, str | bytes] = {"in": "mine\n"}
    submitted = [
        pool.shell(script, user=user, files=files, transfer_input_files="in", transfer_output_files="out")
        for user in ("alice", "bob", "alice")
    ]
    until(lambda: [row[1] for row in slots(pool)] == ["Claimed"] * SLOTS, "all slots have a job", 60)
    results = [result(one) for one in submitted]
    assert [done.code for done in results] == [4] * SLOTS
    seen = [done.text.split() for done in results]
    assert sorted(one[1] for one in seen) == ["64301", "64302", "64303"]
    assert all(one[0] == "mine" and one[4] == f"payload-{int(one[1]) - 64300}" for one in seen), seen
    assert all(one.files()["out"] == b"mine\n" for one in submitted)


def test_a_job_that_uses_too_much_disk_is_held_and_its_neighbour_is_not(pool: Pool) -> None:
    neighbour = pool.shell("sleep 15; echo done", user="bob")
    neighbour.wait("ExecuteEvent")
    facts = pool.shell("head -c 60000000 /dev/zero >x; sleep 600", request_disk="20M").held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (21, 104), facts
    assert result(neighbour).stdout == b"done\n"
    assert int(ads(neighbour)[0]["NumJobStarts"]) == 1


@pytest.mark.landing
def test_a_job_that_ends_its_own_container_goes_back_and_its_neighbours_do_not_notice(pool: Pool) -> None:
    neighbours = pool.shell("sleep 20; echo done", user="bob", count=SLOTS - 1)
    until(lambda: [row[1] for row in slots(pool)].count("Claimed") == SLOTS - 1, "the neighbours run", 60)
    killer = pool.shell("[ -e killed ] && exit 0; kill -KILL -1; sleep 60")
    killer.wait("JobEvictedEvent", timeout=60, ignore=BAD_NEWS)
    killer.remove()
    for number in range(SLOTS - 1):
        assert result(neighbours, number).stdout == b"done\n"
    assert [int(ad["NumJobStarts"]) for ad in ads(neighbours)] == [1] * (SLOTS - 1)


@pytest.mark.landing
def test_a_pod_that_is_deleted_gives_back_the_jobs_of_all_its_slots(lab: Lab, owner: str, pool: Pool) -> None:
    name = f"e2e-{owner}-slots-end"
    deploy(lab, name)
    ending = pool.of_pod(name)
    submitted = ending.shell("trap 'exit 0' TERM; sleep 600 & wait", count=SLOTS)
    until(lambda: [row[1] for row in slots(ending)] == ["Claimed"] * SLOTS, "all slots have a job", 60)
    for number in range(SLOTS):
        submitted.wait("ExecuteEvent", proc=number)
    pilot.delete(lab, name)
    for number in range(SLOTS):
        submitted.wait("JobEvictedEvent", proc=number, timeout=AGAIN_SECONDS, ignore=BAD_NEWS)
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}


@pytest.mark.landing
@pytest.mark.timeout(400)
def test_after_the_accepting_hours_a_pilot_with_an_idle_slot_runs_its_other_jobs_to_their_ends(
    lab: Lab, owner: str, pool: Pool
) -> None:
    name = f"e2e-{owner}-slots-retire"
    deploy(lab, name, ACCEPT_JOBS_FOR_HOURS="0.025")
    ending = pool.of_pod(name)
    submitted = ending.shell("sleep 140; echo done", count=SLOTS - 1)
    for number in range(SLOTS - 1):
        done = result(submitted, number, timeout=260)
        assert (done.code, done.stdout) == (0, b"done\n")
    assert [int(ad["NumJobStarts"]) for ad in ads(submitted)] == [1] * (SLOTS - 1)
    until(lambda: not pilot.runs(lab, name), "the pilot ends when it has no job", AGAIN_SECONDS)
    pilot.discard(lab, name)
