"""A pod that is deleted, evicted or drained away: the schedd sees an eviction, and the job goes on elsewhere."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from lab import jobs as lab_jobs
from lab import pilot, pilot_jobs
from lab.api import Lab
from lab.jobs import BAD_NEWS, Event, Jobs
from lab.pilot import SUPERVISOR
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, until
from tests.e2e.test_checkpoint import SAVER
from tests.e2e.test_end import SAVES
from tests.runner.tiers import each_day

pytestmark = pytest.mark.apart

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
"""A job that does not end when it is asked to."""

CHECKPOINTS = """
step=$(cat state 2>/dev/null || echo 0)
echo at $step
[ $step = 2 ] && touch ready && echo ready && [ "$(hostname)" = {first} ] && sleep 300
[ $step = 3 ] && exit 3
echo $((step + 1)) >state
exit 85
"""
"""A job that checkpoints by itself, and is never done with its third step in its first pod."""

CHECKPOINTING = {
    "checkpoint_exit_code": "85",
    "transfer_checkpoint_files": "state",
    "transfer_output_files": "state",
    "when_to_transfer_output": "ON_EXIT",
}

RESOURCES = ("requests", "limits")

SOON_SECONDS = 30.0
"""Half of K8SPILOT_VACATE_SECONDS, after which it would be killed."""

RUN_DOWN = {"JobDisconnectedEvent", "JobReconnectedEvent", "JobReconnectFailedEvent", "ShadowExceptionEvent"}
"""Events that the schedd writes for a job whose pilot has gone without a word."""


@pytest.fixture
def seat(lab: Lab, owner: str) -> Iterator[str]:
    """A resource of which the node has one (Kubernetes, "Advertise Extended Resources for a Node")."""
    resource = f"k8spilot.lab/seat-{owner}"
    node = json.loads(lab.kubectl("get", "node", "-o", "json"))["items"][0]["metadata"]["name"]
    where = f"/status/capacity/{resource.replace('/', '~1')}"

    def change(**operation: str) -> None:
        lab.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps([operation]))

    change(op="add", path=where, value="1")
    yield resource
    change(op="remove", path=where)


@pytest.fixture
def overlay() -> dict[str, Any]:
    """Changes to the manifest of the pilot that runs."""
    return {}


@pytest.fixture
def seated(seat: str) -> dict[str, Any]:
    """An overlay of a pilot that has the seat."""
    place = "/spec/initContainers/1/resources/{}/" + seat.replace("/", "~1")
    return {"patches": [pilot.change(*({"op": "add", "path": place.format(one), "value": "1"} for one in RESOURCES))]}


@pytest.fixture
def pods(lab: Lab, owner: str, overlay: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The name of a pilot that runs, and that of another one, which does not yet."""
    names = (f"e2e-{owner}-goes", f"e2e-{owner}-comes")
    pilot.deploy(lab, names[0], overlay=overlay)
    lab_jobs.wait_in_pool(lab, names[0])
    yield names
    for name in names:
        pilot.discard(lab, name)


@pytest.fixture
def stories(lab: Lab, pods: tuple[str, str]) -> Iterator[Callable[..., Jobs]]:
    """Submits a script as jobs for the two pods."""
    with ExitStack() as cleanup:

        def submit(script: str, count: int = 1, **commands: str) -> Jobs:
            either = " || ".join(f'TARGET.K8SPodName == "{pod}"' for pod in pods)
            image = {"container_image": f"docker://{lab.registry}/busybox", "requirements": either}
            files = {"job.sh": f"#!/bin/sh\n{script}\n"}
            jobs = lab_jobs.submit(lab, "alice", {**SAVES, **image, **commands}, files=files, count=count)
            cleanup.callback(jobs.remove)
            until(partial(_is_ready, jobs), "the job runs", 60)
            return jobs

        yield submit


def delete(lab: Lab, pod: str) -> None:
    lab.kubectl("delete", "pod", pod, "-n", PILOT_NAMESPACE, "--wait=false")


def evict(lab: Lab, pod: str) -> None:
    """Ask as `kubectl drain` and cluster autoscalers do."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": PILOT_NAMESPACE}}
    path = f"/api/v1/namespaces/{PILOT_NAMESPACE}/pods/{pod}/eviction"
    lab.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))


def asked_to_end(lab: Lab, pod: str) -> float:
    """When the API server was asked to delete the pod, by its clock: whole seconds since the epoch."""
    found = json.loads(lab.kubectl("get", "pod", pod, "-n", PILOT_NAMESPACE, "-o", "json"))["metadata"]
    over = datetime.fromisoformat(found["deletionTimestamp"]).timestamp()
    return over - float(found["deletionGracePeriodSeconds"])


def evicted(jobs: Jobs, timeout: float = SOON_SECONDS) -> Event:
    """The eviction, which comes before anything else that could have ended the job."""
    event = jobs.wait("JobEvictedEvent", timeout=timeout, ignore=BAD_NEWS)
    kinds = {one.kind for one in jobs.events}
    assert not kinds & RUN_DOWN, kinds
    return event


def steps(jobs: Jobs) -> list[str]:
    """Return the steps that a job which checkpoints by itself has made, in all its pods."""
    return [line for line in jobs.files()["out.0"].decode().splitlines() if line.startswith("at")]


def is_gone(lab: Lab, pod: str) -> bool:
    return not lab.kubectl("get", "pod", pod, "-n", PILOT_NAMESPACE, "--ignore-not-found", "-o", "name").strip()


@pytest.mark.parametrize("end", each_day((evict,), (delete, evict)))
@pytest.mark.timeout(300)
def test_a_job_that_saves_its_state_when_it_is_asked_to_end_goes_on_elsewhere(
    lab: Lab, pods: tuple[str, str], stories: Callable[..., Jobs], end: Callable[[Lab, str], None]
) -> None:
    first, second = pods
    jobs = stories(SAVER, count=2)
    end(lab, first)
    asked = asked_to_end(lab, first)
    event = evicted(jobs)
    assert event.at - asked < SOON_SECONDS
    assert event.attributes["Reason"] == "Startd was shutdown"
    until(lambda: is_gone(lab, first), "the pod is gone", 30)
    # The other job waits all the while: the slot takes none any more.
    jobs.look()
    assert [one.kind for one in jobs.events if one.proc == 1] == ["SubmitEvent"]
    jobs.command("condor_rm", proc=1)
    pilot.deploy(lab, second)
    assert jobs.ended(timeout=90, ignore=BAD_NEWS).attributes["ReturnValue"] == 3
    files = jobs.files()
    assert b"began at 42\n" in files["out.0"]


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_a_job_that_checkpoints_by_itself_goes_on_elsewhere_from_its_last_checkpoint(
    lab: Lab, pods: tuple[str, str], stories: Callable[..., Jobs]
) -> None:
    first, second = pods
    jobs = stories(CHECKPOINTS.replace("{first}", first), **CHECKPOINTING)
    delete(lab, first)
    evicted(jobs)
    pilot.deploy(lab, second)
    assert jobs.ended(timeout=90, ignore=BAD_NEWS).attributes["ReturnValue"] == 3
    assert steps(jobs) == ["at 0", "at 1", "at 2", "at 2", "at 3"]


@pytest.mark.nightly
class TestPreemption:
    """A pod of a higher priority wants the pilot's place."""

    @pytest.fixture
    def overlay(self, seated: dict[str, Any]) -> dict[str, Any]:
        """Overlay of the pilot: it has the seat, of which the node has one."""
        return seated

    @pytest.fixture
    def winner(self, lab: Lab, owner: str, seat: str) -> Iterator[dict[str, Any]]:
        """A pod that may take it."""
        name = f"e2e-{owner}-winner"
        metadata = {"name": name, "labels": lab.labels}
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1000}
        lab.kubectl("apply", "-f", "-", input=json.dumps(priority))
        container = {
            "name": "winner",
            "image": f"{lab.registry}/busybox",
            "command": ["sleep", "600"],
            "resources": {"limits": {seat: "1"}},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "namespace": PILOT_NAMESPACE},
            "spec": {"priorityClassName": name, "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        lab.kubectl("delete", "pod", name, "-n", PILOT_NAMESPACE, "--ignore-not-found", "--grace-period=0", "--force")
        lab.kubectl("delete", "priorityclass", name)

    @pytest.mark.timeout(300)
    def test_a_job_under_a_pod_that_is_preempted_goes_on_elsewhere(
        self, lab: Lab, pods: tuple[str, str], stories: Callable[..., Jobs], winner: dict[str, Any]
    ) -> None:
        first, second = pods
        jobs = stories(SAVER)
        lab.kubectl("create", "-f", "-", input=json.dumps(winner))
        until(lambda: _is_preempted(lab, first), "the scheduler has chosen the pilot", 60)
        assert evicted(jobs).attributes["Reason"] == "Startd was shutdown"
        pilot.deploy(lab, second)
        assert jobs.ended(timeout=90, ignore=BAD_NEWS).attributes["ReturnValue"] == 3
        assert b"began at 42\n" in jobs.files()["out.0"]


def _is_preempted(lab: Lab, pod: str) -> bool:
    """Whether the pod says so; one that is gone already has had its end."""
    found = lab.kubectl("get", "pod", pod, "-n", PILOT_NAMESPACE, "--ignore-not-found", "-o", "json")
    conditions = json.loads(found)["status"].get("conditions", ()) if found.strip() else ()
    return any(one["reason"] == "PreemptionByScheduler" for one in conditions if one["type"] == "DisruptionTarget")


@pytest.mark.timeout(300)
def test_a_second_sigterm_kills_jobs_at_once_and_the_schedd_sees_an_eviction(
    lab: Lab, pods: tuple[str, str], stories: Callable[..., Jobs]
) -> None:
    first, _ = pods
    jobs = stories(STUBBORN)
    pool = Pool(lab, first, ExitStack())
    for _ in range(2):
        pool.inside(f"kill -TERM $(pgrep -of {SUPERVISOR})")
        asked = time.time()
        time.sleep(1)
    assert evicted(jobs).at - asked < SOON_SECONDS
    until(lambda: pool.status()["status"]["phase"] == "Succeeded", "the pilot has ended in good order", 30)
    jobs.command("condor_rm")


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_a_grace_period_that_is_too_short_costs_a_job_its_last_seconds_and_no_more(
    lab: Lab, pods: tuple[str, str], stories: Callable[..., Jobs]
) -> None:
    first, _ = pods
    jobs = stories(STUBBORN)
    lab.kubectl("delete", "pod", first, "-n", PILOT_NAMESPACE, "--wait=false", "--grace-period=12")
    asked = asked_to_end(lab, first)
    event = evicted(jobs)
    assert 4 < event.at - asked <= 12  # both are whole seconds
    jobs.command("condor_rm")


@pytest.mark.landing
@pytest.mark.timeout(400)
def test_a_pod_that_is_killed_without_a_word_gives_its_job_back_when_the_lease_ends(
    lab: Lab, pods: tuple[str, str], stories: Callable[..., Jobs]
) -> None:
    first, second = pods
    jobs = stories(SAVER.replace("count=42", "count=0"), job_lease_duration="60")
    lab.kubectl("delete", "pod", first, "-n", PILOT_NAMESPACE, "--force", "--grace-period=0")
    event = jobs.wait("JobReconnectFailedEvent", "JobEvictedEvent", timeout=200, ignore=BAD_NEWS)
    assert "JobLeaseDuration (60 seconds) expired" in event.attributes["Reason"]
    assert [one.kind for one in jobs.events][-2:] == ["JobDisconnectedEvent", "JobReconnectFailedEvent"]
    pilot.deploy(lab, second)
    until(lambda: jobs.look() or _starts(jobs) == 2, "it runs again", 90)
    jobs.command("condor_rm")


def _starts(jobs: Jobs) -> int:
    return len([one for one in jobs.events if one.kind == "ExecuteEvent"])


@pytest.mark.landing
@pytest.mark.disruptive
@pytest.mark.timeout(400)
def test_jobs_on_a_drained_node_go_on_with_their_state_in_other_pods_of_the_same_jobs(lab: Lab, owner: str) -> None:
    names = {kind: f"e2e-{owner}-drain-{kind}" for kind in ("saves", "checkpoints")}
    with ExitStack() as cleanup:
        cleanup.callback(pilot_jobs.delete, lab, *names.values())
        pods = pilot_jobs.deploy(lab, {name: {} for name in names.values()})
        scripts = {"saves": SAVER, "checkpoints": CHECKPOINTS.replace("{first}", pods[names["checkpoints"]])}
        submitted = {kind: _of_job(lab, name, scripts[kind], kind) for kind, name in names.items()}
        for jobs in submitted.values():
            cleanup.callback(jobs.remove)
            until(partial(_is_ready, jobs), "the job runs", 60)
        node = json.loads(lab.kubectl("get", "node", "-o", "json"))["items"][0]["metadata"]["name"]
        cleanup.callback(lab.kubectl, "uncordon", node)
        chosen = f"--pod-selector=job-name in ({','.join(names.values())})"
        lab.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", chosen, "--timeout=60s")
        for jobs in submitted.values():
            assert evicted(jobs).attributes["Reason"] == "Startd was shutdown"
        lab.kubectl("uncordon", node)
        for jobs in submitted.values():
            assert jobs.ended(timeout=120, ignore=BAD_NEWS).attributes["ReturnValue"] == 3
        assert b"began at 42\n" in submitted["saves"].files()["out.0"]
        assert steps(submitted["checkpoints"]) == ["at 0", "at 1", "at 2", "at 2", "at 3"]


def _of_job(lab: Lab, name: str, script: str, kind: str) -> Jobs:
    """Submit a job for any pod of the Job `name`."""
    commands = {
        **SAVES,
        **(CHECKPOINTING if kind == "checkpoints" else {}),
        "container_image": f"docker://{lab.registry}/busybox",
        "requirements": f'regexp("^{name}", TARGET.K8SPodName)',
    }
    return lab_jobs.submit(lab, "alice", commands, files={"job.sh": f"#!/bin/sh\n{script}\n"})


def _is_ready(jobs: Jobs) -> bool:
    return b"ready" in jobs.files().get("out.0", b"")
