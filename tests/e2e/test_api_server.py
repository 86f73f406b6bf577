"""The API server is away, slow or unwilling; jobs do not get to know."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.errors import LabError
from lab.faulty import Fault, FaultyRegistry
from lab.faulty_api import FaultyApi, faulty_api
from lab.jobs import BAD_NEWS, Jobs
from lab.oci import OciImage, Pusher, shell
from tests.e2e.pool import (
    MATCHED_SECONDS,
    WAITS,
    Pool,
    ads,
    hold_reason,
    is_left_alone,
    result,
    runs,
    slot_takes_a_job_of_bob,
    until,
)

PATIENCE_SECONDS = 15
"""K8SPILOT_PATIENCE_SECONDS of the pod."""
AGAIN_SECONDS = 60.0
"""Within this time after an outage the slot runs jobs again: the pilot watches again after 30 s at most."""
NO_RIGHT = 'pods "p" is forbidden: User "u" cannot patch resource "pods" in API group "" in the namespace "pilots"'
MEMORY_HOLD = 34


@pytest.fixture(scope="module")
def api(lab: Lab) -> Iterator[FaultyApi]:
    """The API server, as far as the pod below is concerned."""
    with faulty_api(lab) as server:
        yield server


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str, api: FaultyApi) -> Iterator[str]:
    """A pilot pod that comes to the API server through that, and loses patience sooner."""
    name = f"e2e-{owner}-api"
    changed = {"K8SPILOT_PATIENCE_SECONDS": str(PATIENCE_SECONDS), "K8SPILOT_IDLE_AFTER_SECONDS": "1"}
    pilot.deploy(lab, name, {**api.environment, **changed})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.delete(lab, name)  # before the proxy, which its connections go through


@pytest.fixture
def well(api: FaultyApi) -> Iterator[FaultyApi]:
    """The API server, which is well again after the test."""
    yield api
    api.is_well()


def _takes_no_job(pool: Pool) -> bool:
    return pool.of_slot("K8SApiAwayUntil") not in ("", "undefined")


def _takes_jobs(pool: Pool) -> bool:
    return pool.of_slot("K8SApiAwayUntil") == "undefined"


def _kinds(of: Jobs) -> set[str]:
    of.look()
    return {event.kind for event in of.events}


def test_an_outage_while_a_job_runs_costs_it_nothing(pool: Pool, well: FaultyApi) -> None:
    submitted = pool.shell("echo begun; sleep 12; echo done; exit 3")
    runs(pool, "sleep 12")
    well.goes_away()
    until(lambda: _takes_no_job(pool), "the slot says that it takes no job")
    ended = result(submitted)
    assert (ended.code, ended.stdout) == (3, b"begun\ndone\n")
    assert ads(submitted)[0]["NumShadowStarts"] == 1
    well.comes_back()
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
    until(lambda: _takes_jobs(pool), "the slot says no more that it takes no job")


def test_a_job_that_comes_in_an_outage_goes_back_to_the_queue_and_runs_after_it(
    pool: Pool, well: FaultyApi, faulty: FaultyRegistry
) -> None:
    faulty.fails(Fault(path=".*/tags/list", hang=True))
    submitted = pool.shell(
        f"{WAITS}test -s list && echo fine", transfer_input_files=f"http://{faulty.address}/v2/busybox/tags/list"
    )
    until(
        lambda: faulty.asked(".*/tags/list"),
        "the job's input is on its way, so that the slot is its own",
        MATCHED_SECONDS,
    )
    well.goes_away()
    faulty.is_well()
    submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=PATIENCE_SECONDS + 45, ignore=BAD_NEWS)
    until(lambda: _takes_no_job(pool), "the slot says that it takes no job")
    is_left_alone(submitted)
    assert "JobHeldEvent" not in _kinds(submitted)
    well.comes_back()
    submitted.ended(timeout=AGAIN_SECONDS + 30, ignore=BAD_NEWS)
    assert submitted.files()["out.0"] == b"fine\n"
    assert ads(submitted)[0]["NumShadowStarts"] == 2  # once more, and not again and again


def test_a_slot_without_an_api_server_is_left_alone(pool: Pool, well: FaultyApi) -> None:
    well.goes_away()
    until(lambda: _takes_no_job(pool), "the slot says that it takes no job")
    submitted = pool.shell("echo fine")
    is_left_alone(submitted)
    assert _kinds(submitted) == {"SubmitEvent"}
    well.comes_back()
    assert result(submitted, timeout=AGAIN_SECONDS + 30).stdout == b"fine\n"


def test_answers_that_are_lost_bind_no_job_twice(pool: Pool, well: FaultyApi) -> None:
    result(pool.shell("sleep 3"))  # its container is in the pod's status by its end
    until(pool.has_idle_image, "the payload container is idle")
    before = pool.restarts()
    well.fails(Fault(verb="patch", cut=True, times=1))
    submitted = pool.shell("echo fine; sleep 5")
    runs(pool, "sleep 5")
    assert pool.restarts() == before + 1
    assert result(submitted).stdout == b"fine\n"


def test_a_right_that_the_pilot_has_lost_holds_no_job(pool: Pool, well: FaultyApi) -> None:
    # Else the change to the idle image may be refused first: the slot would take no job at all.
    until(pool.has_idle_image, "the payload container is idle")
    well.fails(Fault(verb="patch", status=403, error=("Forbidden", NO_RIGHT)))
    submitted = pool.shell("echo fine")
    submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=PATIENCE_SECONDS + 45, ignore=BAD_NEWS)
    until(lambda: _takes_no_job(pool), "the slot says that it takes no job")
    assert "JobHeldEvent" not in _kinds(submitted)
    well.is_well()
    submitted.ended(timeout=AGAIN_SECONDS + 30, ignore=BAD_NEWS)
    assert submitted.files()["out.0"] == b"fine\n"


@contextmanager
def _policy(pool: Pool, name: str) -> Iterator[None]:
    """A ValidatingAdmissionPolicy of the cluster's administrator: no Debian in this pod."""
    kind = "admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "own", "expression": f"object.metadata.name == '{pool.pod}'"}],
        "validations": [
            {
                "expression": "object.spec.initContainers.all(one, !one.image.contains('/debian'))",
                "message": "no Debian here, says the cluster",
            }
        ],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    made = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [
            {"apiVersion": kind, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": kind,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": binding,
            },
        ],
    }
    pool.lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    try:
        yield
    finally:
        kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
        pool.lab.kubectl("delete", kinds, name, "--ignore-not-found")


def test_a_policy_that_refuses_the_image_leaves_the_job_to_other_sites_and_says_why(pool: Pool, pusher: Pusher) -> None:
    image = pusher.push("e2e/debian-refused:1", OciImage([shell()])).partition("@")[0]
    with _policy(pool, f"{pool.pod}-images"):
        until(lambda: _is_refused(pool), "the API server knows the policy")
        refused = pool.shell("true", container_image=f"docker://{image}")
        refused.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=MATCHED_SECONDS, ignore=BAD_NEWS)
        until(lambda: image in pool.of_slot("K8SAvoidedImages").split(","), "the slot says what it avoids")
        assert "no Debian here, says the cluster" in pool.inside("k8spilot status")
        slot_takes_a_job_of_bob(pool)
    assert not _takes_no_job(pool)


def _is_refused(pool: Pool) -> bool:
    change = {"spec": {"initContainers": [{"name": "payload", "image": "registry.example/debian"}]}}
    command = ("patch", "pod", pool.pod, "-n", "pilots", "--dry-run=server", "--patch", json.dumps(change))
    try:
        pool.lab.kubectl(*command)
    except LabError as problem:
        return "no Debian" in str(problem)
    return False


@pytest.mark.landing
def test_out_of_memory_is_out_of_memory_in_an_outage(pool: Pool, well: FaultyApi) -> None:
    script = """perl -e 'sleep 4; my @all; while (1) { push @all, "x" x 10_000_000; }'"""
    submitted = pool.shell(script, image="debian:forky")
    runs(pool, "perl")
    well.goes_away()
    hold_reason(submitted, MEMORY_HOLD)
    well.comes_back()
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)
