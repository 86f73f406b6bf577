"""Faults while pilots follow the demand: each job runs all the same, and no pilot is made for nothing."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from lab import clock, pod_faults
from lab.api import Lab
from lab.factory import PROVISIONER, Factory
from lab.jobs import Jobs
from lab.pod_processes import hit
from tests.e2e.pool import until
from tests.e2e.provisioner.pilots import MOST, SMALL, Submit, alive, told
from tests.runner.tiers import each_day

pytestmark = [pytest.mark.landing, pytest.mark.timeout(400)]

PATIENCE_S = 240.0
"""For a job's end once all is back: six tests at a time share the node."""
FAR_S = 3600


@pytest.fixture(autouse=True)
def at_work(fresh: None, site: Factory) -> Iterator[None]:
    """Begin with a provisioner that is at work. No test leaves more pilots than the limit."""
    site.apply(SMALL)
    site.provisioner()
    yield
    assert len(alive(site)) <= MOST


def all_run(site: Factory, waiting: Jobs, seconds: float = PATIENCE_S) -> None:
    """Wait for the ends of all jobs, and watch that the limit holds."""
    for proc in range(waiting.count):
        waiting.ended(proc, timeout=seconds, ignore=frozenset({"JobEvictedEvent", "ShadowExceptionEvent"}))
        assert len(alive(site)) <= MOST


def test_a_provisioner_that_is_killed_at_each_step_goes_on(site: Factory, submit: Submit) -> None:
    waiting = submit("sleep 4", count=9)
    for seconds in (0.0, 0.5, 2.0, 5.0):
        name = site.provisioner()
        time.sleep(seconds)
        hit(site.here, name, "provision", signal.SIGKILL)
        site.kubectl("delete", "pod", name, "--grace-period=0", "--force")  # without the kubelet's back-off
    all_run(site, waiting)
    assert len(site.pilots()) == MOST


@pytest.mark.parametrize(
    ("cut", "fault"),
    [
        (pod_faults.network_cut, "the demand is unknown, so that nothing is changed"),
        (pod_faults.access_point_cut, "the access point"),
        (pod_faults.api_server_cut, ""),  # it cannot write that
    ],
    ids=["the pool", "the access point", "the API server"],
)
def test_while_nothing_answers_nothing_is_changed(
    site: Factory, submit: Submit, cut: Callable[[Lab, str], AbstractContextManager[None]], fault: str
) -> None:
    first = submit("sleep 20", count=1)
    until(lambda: len(alive(site)) == 1, "a pilot", 60)
    (before,) = alive(site)
    with cut(site.here, site.provisioner()):
        waiting = submit("sleep 1", count=4)
        time.sleep(20)
        if fault:
            until(lambda: any(fault in words for words in site.status()["faults"]), "the fault is told", 60)
        assert [pod["metadata"]["uid"] for pod in site.pilots()] == [before["metadata"]["uid"]]
    all_run(site, first)
    all_run(site, waiting)


def test_pilots_of_a_template_that_changes_run_on_and_new_ones_are_of_the_new_one(
    site: Factory, submit: Submit
) -> None:
    running = submit("sleep 40", count=1)
    running.wait("ExecuteEvent")
    (old,) = alive(site)
    site.apply(replace(SMALL, environment={**SMALL.environment, "GLIDEIN_Site": "elsewhere"}))
    waiting = submit("sleep 1", count=2)
    until(lambda: len(alive(site)) > 1, "a new pilot", 60)
    versions = {pod["metadata"]["annotations"]["k8spilot/template-version"] for pod in alive(site)}
    assert len(versions) == 2
    all_run(site, waiting)
    all_run(site, running)
    assert old["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in site.pilots()}


def test_a_used_up_quota_is_told_and_the_rest_follows_when_there_is_more(site: Factory, submit: Submit) -> None:
    site.kubectl("create", "quota", "few", "--hard=pods=2")  # the provisioner is one of them
    try:
        waiting = submit("sleep 15", count=3)
        words = "the namespace's quota is used up; lower max-pilots or ask for more"
        until(lambda: words in told(site, "small").get("closure", {}).get("reason", ""), "the refusal is told", 60)
        assert len(alive(site)) == 1
        assert any(words in one["message"] for one in site.events() if one["reason"] == "TemplateClosed")
    finally:
        site.kubectl("delete", "quota", "few")
    all_run(site, waiting)


def test_jobs_of_pilots_that_are_deleted_by_hand_get_others(site: Factory, submit: Submit) -> None:
    waiting = submit("sleep 15", count=3)
    for proc in range(3):
        waiting.wait("ExecuteEvent", proc=proc)
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in alive(site)[:2]}
    site.kubectl("delete", "pod", *old, "--wait=false")  # killed at once, their jobs would wait for a reconnection
    all_run(site, waiting)
    deadline = time.monotonic() + PATIENCE_S
    while {pod["metadata"]["uid"] for pod in alive(site)} & set(old.values()):
        assert time.monotonic() < deadline, site.pilot_logs()
        time.sleep(0.5)


@pytest.mark.parametrize("seconds", each_day([FAR_S], [FAR_S, -FAR_S]))
def test_a_clock_that_jumps_makes_no_pilot_too_many(site: Factory, submit: Submit, seconds: int) -> None:
    with clock.operations(site.here, "provisioner", "/spec/template") as operations:
        run = {"name": "run", "emptyDir": {}}
        more = [
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": run},
            {
                "op": "add",
                "path": "/spec/template/spec/containers/0/volumeMounts/-",
                "value": {"name": "run", "mountPath": "/run"},
            },
        ]
        site.patch_provisioner(*operations, *more)
        first = submit("sleep 2", count=2)
        until(lambda: len(alive(site)) == 2, "two pilots", 60)
        with clock.shifted(site.here, site.provisioner(), seconds, "provisioner"):
            waiting = submit("sleep 20", count=4)
            all_run(site, first)
            all_run(site, waiting)
        again = submit("sleep 1", count=4)
        all_run(site, again)
        site.kubectl("delete", "deployment", PROVISIONER)  # the next one has the machine's clock
    assert len(site.pilots()) <= MOST + 2, "finished ones may have been replaced once"
