"""Faults of the payload container from outside of its job: killed, stopped, frozen, out of memory, changed."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from lab import jobs, pilot, pod_faults
from lab.api import Lab
from lab.errors import NothingToHitError
from lab.jobs import BAD_NEWS, Jobs
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import WAITS, Pool, ads, result, runs, slot_takes_a_job_of_bob, until
from tests.runner.tiers import each_day

AGAIN_SECONDS = 60.0
"""Within this time after a fault the slot runs jobs again."""

FAR_LESS_THAN_GRACE_SECONDS = 30.0
"""The pod's terminationGracePeriodSeconds is 120."""

MEMORY_MIB = 160

KILLED = (
    "cannot start a (?:stopped process|container that has stopped)|cannot start an already running container|"
    "container process is already dead|is not in created state"
)
"""Messages of containerd, runc and CRI-O for a start of a container whose first process was killed."""

LONG_ONCE = f"grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD && sleep 300; {WAITS}echo done"
"""However long it takes to hit a job's first run: that does not end before."""


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod whose /tmp for jobs counts as their memory, of which there is little."""
    name = f"e2e-{owner}-payload"
    memory = pilot.change(
        {"op": "replace", "path": "/spec/initContainers/1/resources/limits/memory", "value": f"{MEMORY_MIB}Mi"},
        {"op": "replace", "path": "/spec/initContainers/1/resources/requests/memory", "value": "32Mi"},
    )
    overlay = {"patches": [memory, pilot.in_memory("tmp", "1Gi")]}
    pilot.deploy(lab, name, {"K8SPILOT_IDLE_AFTER_SECONDS": "1"}, overlay)
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


def _begin(pool: Pool, script: str, mark: str, vacate_seconds: int = 60) -> Jobs:
    """Submit a script, and wait until it runs a command with `mark` in it."""
    submitted = pool.shell(script, job_max_vacate_time=str(vacate_seconds))
    runs(pool, mark)
    return submitted


def _runs_again(submitted: Jobs, output: bytes) -> None:
    """The job was lost, was not held for it, and came to its right end the second time."""
    submitted.ended(timeout=90, ignore=BAD_NEWS)
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}
    assert submitted.files()["out.0"] == output
    assert int(ads(submitted)[0]["NumJobStarts"]) == 2


def _set_image(pool: Pool, image: str) -> None:
    pool.lab.kubectl("set", "image", "-n", PILOT_NAMESPACE, f"pod/{pool.pod}", f"payload={image}")


def _payload(pool: Pool) -> dict[str, Any]:
    statuses = pool.status()["status"]["initContainerStatuses"]
    return next(dict(one) for one in statuses if one["name"] == "payload")


def _started(pool: Pool) -> float:
    """When the payload container that runs was started, by the kubelet's clock: seconds since the epoch."""
    return datetime.fromisoformat(_payload(pool)["state"]["running"]["startedAt"]).timestamp()


def _last_bind_seconds(pool: Pool) -> float:
    """Return the seconds of the last bind, by the pilot's clock: from the request until the container ran."""
    return float(re.findall(r" Bound \S+ in ([0-9.]+) s", pool.log(300))[-1])


def test_a_job_whose_payload_init_is_killed_runs_again(pool: Pool) -> None:
    submitted = _begin(pool, LONG_ONCE, "sleep 300")
    pool.inside(f"kill -KILL {pool.first_process()}")
    _runs_again(submitted, b"done\n")
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


@pytest.mark.timeout(300)
def test_a_container_that_is_killed_before_it_starts_costs_its_job_the_kubelets_pause(pool: Pool) -> None:
    until(pool.has_idle_image, "no container but the job's is about to be made", AGAIN_SECONDS)
    with pod_faults.next_container_killed(pool.lab, pool.pod) as killed:
        event = pool.shell("exit 7").ended(timeout=120)
        assert killed(1)
    assert event.attributes["ReturnValue"] == 7
    assert re.search(f": RunContainerError: .*(?:{KILLED})", pool.log(120))


def test_a_job_whose_payload_init_is_stopped_can_be_removed_and_the_next_does_not_wait_for_the_grace_period(
    pool: Pool,
) -> None:
    submitted = _begin(pool, "sleep 300", "sleep 300", vacate_seconds=2)
    with pod_faults.payload_init_frozen(pool.lab, pool.pod):
        submitted.command("condor_rm")
        submitted.wait("JobAbortedEvent", ignore=BAD_NEWS)
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
        assert _last_bind_seconds(pool) < FAR_LESS_THAN_GRACE_SECONDS


def test_a_bind_over_a_payload_init_that_stands_still_does_not_wait_for_the_grace_period(pool: Pool) -> None:
    until(pool.has_idle_image, "the idle image runs", AGAIN_SECONDS)
    with pod_faults.payload_init_frozen(pool.lab, pool.pod):
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
        assert _last_bind_seconds(pool) < FAR_LESS_THAN_GRACE_SECONDS


def test_an_unbind_over_a_payload_init_that_stands_still_does_not_wait_for_the_grace_period(pool: Pool) -> None:
    for _ in range(5):  # the unbind begins a moment after the job, and may be over before anything can be stopped
        ended = pool.shell("true").ended()
        with suppress(NothingToHitError), pod_faults.payload_init_frozen(pool.lab, pool.pod):
            if pool.has_idle_image():  # it was over: what stands still is the idle image's
                continue
            until(pool.has_idle_image, "the idle image runs", AGAIN_SECONDS)
            assert _started(pool) - ended.at < FAR_LESS_THAN_GRACE_SECONDS
            return
    pytest.fail("the job's payload-init was never there to be stopped")


def test_a_job_waits_while_the_container_before_it_cannot_be_ended(pool: Pool) -> None:
    assert result(pool.shell("true")).code == 0
    with pod_faults.payload_frozen(pool.lab, pool.pod):
        submitted = pool.shell("echo fine")
        time.sleep(8)
    assert result(submitted, timeout=AGAIN_SECONDS).stdout == b"fine\n"


def test_a_job_that_is_removed_while_its_container_cannot_be_ended_frees_the_slot_afterwards(pool: Pool) -> None:
    submitted = _begin(pool, "sleep 300", "sleep 300")
    with pod_faults.payload_frozen(pool.lab, pool.pod):
        submitted.command("condor_rm")
        time.sleep(8)
    submitted.wait("JobAbortedEvent", ignore=BAD_NEWS)
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


# What is in /tmp stays its container's memory when who wrote it is dead: payload-init is all that is left to kill.
_FILL = "cat /dev/zero >/tmp/x & cat /dev/zero >/tmp/y; cat /dev/zero >/tmp/z; sleep 30; echo done"


def test_a_job_that_leaves_no_memory_for_payload_init_is_held_for_its_memory(pool: Pool) -> None:
    submitted = pool.shell(_FILL)
    facts = submitted.held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (34, 102), facts
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


IMAGES = ("busybox", "nothing-of-that-name")


@pytest.mark.parametrize("image", each_day(("nothing-of-that-name",), IMAGES))
def test_a_job_whose_image_somebody_changes_runs_again(pool: Pool, image: str) -> None:
    submitted = _begin(pool, LONG_ONCE, "sleep 300")
    _set_image(pool, f"{pool.lab.registry}/{image}:latest")
    _runs_again(submitted, b"done\n")


@pytest.mark.parametrize("image", each_day(("busybox",), IMAGES))
def test_an_image_that_somebody_sets_between_jobs_is_of_no_account(pool: Pool, image: str) -> None:
    _set_image(pool, f"{pool.lab.registry}/{image}:latest")
    time.sleep(2)
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_labels_annotations_and_a_debugging_container_are_of_no_account(pool: Pool) -> None:
    submitted = _begin(pool, "sleep 15; echo done", "sleep 15")
    where = ("-n", PILOT_NAMESPACE)
    pool.lab.kubectl("label", "pod", pool.pod, *where, "app.kubernetes.io/name-", "somebody=was-here")
    pool.lab.kubectl("annotate", "pod", pool.pod, *where, "somebodys=note")
    debugger = {"name": "debugger", "image": f"{pool.lab.registry}/busybox:latest", "command": ["true"]}
    patch = json.dumps({"spec": {"ephemeralContainers": [debugger]}})
    pool.lab.kubectl("patch", "pod", pool.pod, *where, "--subresource=ephemeralcontainers", "-p", patch)
    assert result(submitted).stdout == b"done\n"
    assert int(ads(submitted)[0]["NumJobStarts"]) == 1
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
