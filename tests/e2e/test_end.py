"""End of a pilot by itself, or by order of its pool's operators: the Job that owns it completes."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from lab import jobs as lab_jobs
from lab import pilot, pilot_jobs
from lab.api import Lab
from lab.jobs import BAD_NEWS, Jobs, JobTrouble
from lab.settings import POOL_NAMESPACE
from tests.e2e.pool import Pool, until
from tests.e2e.test_checkpoint import SAVER

pytestmark = pytest.mark.apart

QUICK = {"_CONDOR_MASTER_UPDATE_INTERVAL": "5", "_CONDOR_UPDATE_INTERVAL": "5"}
"""HTCondor looks at the rules for the end when it tells the collector that it is there: every two minutes."""

HOUR = 3600
ACCEPTS_SECONDS = 90
"""From the start of the pilot: time for it to come into the pool, and for a job to start, also on a busy machine."""

SAVES = {
    "executable": "job.sh",
    "transfer_executable": "true",
    "when_to_transfer_output": "ON_EXIT_OR_EVICT",
    "transfer_output_files": "state, ready",
    "stream_output": "true",
}

ORDERS = {
    "drain-graceful": ("condor_drain", "-exit-on-completion", "-graceful"),
    "drain-quick": ("condor_drain", "-exit-on-completion", "-quick"),
    "drain-fast": ("condor_drain", "-exit-on-completion", "-fast"),
    "off-graceful": ("condor_off", "-graceful", "-name"),
    "off-fast": ("condor_off", "-fast", "-name"),
    "off-peaceful": ("condor_off", "-peaceful", "-startd", "-name"),
}

Deploy = Callable[[Mapping[str, Mapping[str, str]]], dict[str, str]]


@pytest.fixture
def deploy(lab: Lab, owner: str) -> Iterator[Deploy]:
    """Makes Jobs with pilots, for the test that asks; says which pods are theirs."""
    made: list[str] = []

    def make(environments: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        names = {f"e2e-{owner}-{key}": {**QUICK, **environment} for key, environment in environments.items()}
        made.extend(names)
        pods = pilot_jobs.deploy(lab, names)
        return dict(zip(environments, pods.values(), strict=True))

    yield make
    pilot_jobs.delete(lab, *made)


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def saver(pool: Pool) -> Jobs:
    """A job that saves its state when it is asked to end, and ends by itself (code 3) when it finds it."""
    return pool.submit(SAVES, files={"job.sh": f"#!/bin/sh\n{SAVER}\n"})


def runs(jobs: Jobs) -> None:
    """Wait until the job has said that it is ready."""
    until(lambda: b"ready" in jobs.files().get("out.0", b""), "the job runs", 60)


def is_complete(lab: Lab, owner: str, key: str) -> bool:
    return pilot_jobs.is_complete(lab, f"e2e-{owner}-{key}")


@pytest.mark.timeout(400)
def test_a_pilot_that_nobody_claims_ends(lab: Lab, owner: str, deploy: Deploy) -> None:
    pod = deploy({"idle": {"ACCEPT_IDLE_MINUTES": "0.25"}})["idle"]
    until(partial(is_complete, lab, owner, "idle"), "the Job is complete", 180)
    assert _lived(lab, pod) > 15
    assert _reason(lab, pod) == "The pilot ends: idle for 0.25 min (ACCEPT_IDLE_MINUTES)."


@pytest.mark.landing
@pytest.mark.timeout(400)
def test_after_the_accepting_hours_a_job_runs_to_its_end_and_no_other_begins(
    lab: Lab, owner: str, deploy: Deploy, cleanup: ExitStack
) -> None:
    pods = deploy({"retired": {"ACCEPT_JOBS_FOR_HOURS": str(ACCEPTS_SECONDS / HOUR), "RETIREMENT_HOURS": "1"}})
    pool = Pool(lab, pods["retired"], cleanup)
    # However long the pilot, and the job, took to start: the job runs until a while after the accepting hours.
    over = _began(lab, pods["retired"]) + ACCEPTS_SECONDS
    submitted = pool.shell(f"while [ $(date +%s) -lt {int(over) + 10} ]; do sleep 1; done; echo done", count=2)
    submitted.wait("ExecuteEvent", proc=0)
    ended = submitted.ended(0, timeout=ACCEPTS_SECONDS + 60)
    assert ended.attributes["ReturnValue"] == 0
    assert ended.at > over
    # Although a job waits, and nobody has had to wait for ACCEPT_IDLE_MINUTES.
    until(partial(is_complete, lab, owner, "retired"), "the Job is complete", 120)
    submitted.look()
    assert [event.kind for event in submitted.events if event.proc == 1] == ["SubmitEvent"]
    assert "its time to take jobs is over" in _reason(lab, pods["retired"])


@pytest.mark.landing
@pytest.mark.timeout(500)
def test_a_job_that_runs_past_the_end_of_its_pilot_goes_on_elsewhere_with_its_state(
    lab: Lab, owner: str, deploy: Deploy, cleanup: ExitStack
) -> None:
    life = {"GLIDEIN_Max_Walltime": "110", "RETIREMENT_HOURS": str(15 / HOUR)}
    pod = deploy({"dead": life})["dead"]
    either = f'TARGET.K8SPodName == "{pod}" || TARGET.K8SPodName == "{pod}-next"'
    commands = {**SAVES, "container_image": f"docker://{lab.registry}/busybox", "requirements": either}
    submitted = lab_jobs.submit(lab, "alice", commands, files={"job.sh": f"#!/bin/sh\n{SAVER}\n"})
    cleanup.callback(submitted.remove)
    runs(submitted)
    submitted.wait("JobEvictedEvent", timeout=180, ignore=BAD_NEWS)
    until(partial(is_complete, lab, owner, "dead"), "the Job is complete", 120)
    assert "its time is over" in _reason(lab, pod)
    cleanup.callback(pilot.delete, lab, f"{pod}-next")
    pilot.deploy(lab, f"{pod}-next")
    assert submitted.ended(timeout=90, ignore=BAD_NEWS).attributes["ReturnValue"] == 3
    assert b"began at 42\n" in submitted.files()["out.0"]


@pytest.mark.landing
@pytest.mark.timeout(600)
def test_each_order_of_the_pools_operators_ends_a_pilot_and_gives_its_job_what_it_promises(
    lab: Lab, owner: str, deploy: Deploy, cleanup: ExitStack
) -> None:
    pods = deploy({key: {} for key in ORDERS})
    submitted = {key: saver(Pool(lab, pod, cleanup)) for key, pod in pods.items() if key != "off-peaceful"}
    submitted["off-peaceful"] = Pool(lab, pods["off-peaceful"], cleanup).shell(
        "echo ready; sleep 20; exit 4", stream_output="true"
    )
    for one in submitted.values():
        runs(one)
    until(partial(_masters_are_known, lab, pods), "the pool knows all masters")
    for key, order in ORDERS.items():
        lab.kubectl("exec", "-n", POOL_NAMESPACE, "central-manager", "--", *order, f"lab.{pods[key]}")
    seen = {key: _outcome(one) for key, one in submitted.items()}
    assert seen == {
        "drain-graceful": "evicted with its state",
        "drain-quick": "evicted with its state",
        "drain-fast": "evicted without",
        "off-graceful": "evicted with its state",
        "off-fast": "evicted without",
        "off-peaceful": "exit code 4",
    }
    for key in ORDERS:
        until(partial(is_complete, lab, owner, key), f"the Job is complete after {key}", 120)
    reasons = {key: _reason(lab, pods[key]) for key in ORDERS}
    told = {"drain": "drained by a tool at ", "off": "HTCondor's startd was turned off (condor_off)"}
    assert {key: told[key.partition("-")[0]] in reason for key, reason in reasons.items()} == dict.fromkeys(
        ORDERS, True
    ), reasons
    assert "(by root)" in reasons["drain-fast"]


@pytest.mark.landing
@pytest.mark.timeout(400)
def test_condor_restart_starts_htcondor_anew_in_a_pilot_that_goes_on(
    lab: Lab, deploy: Deploy, cleanup: ExitStack
) -> None:
    pods = deploy({"restart": {}})
    pool = Pool(lab, pods["restart"], cleanup)
    submitted = saver(pool)
    runs(submitted)
    until(partial(_masters_are_known, lab, pods), "the pool knows its master")
    order = ("condor_restart", "-name", f"lab.{pool.pod}")
    lab.kubectl("exec", "-n", POOL_NAMESPACE, "central-manager", "--", *order)
    assert _outcome(submitted) == "evicted with its state"
    assert submitted.ended(timeout=120, ignore=BAD_NEWS).attributes["ReturnValue"] == 3
    assert "Ending: " not in pool.log(600)


def _reason(lab: Lab, pod: str) -> str:
    """The termination message, which is the last line of the log, too."""
    message = str(_state(lab, pod)["terminated"]["message"])
    log = lab.kubectl("logs", pod, "-n", lab.namespace, "-c", "pilot", "--tail=1").strip()
    assert log.endswith(message)
    return message


def _lived(lab: Lab, pod: str) -> float:
    """Return how many seconds the pilot container has run, by the kubelet's clock."""
    state = _state(lab, pod)["terminated"]
    began, ended = (datetime.fromisoformat(state[key]) for key in ("startedAt", "finishedAt"))
    return (ended - began).total_seconds()


def _began(lab: Lab, pod: str) -> float:
    """When the pilot container was started, by the kubelet's clock: seconds since the epoch."""
    return datetime.fromisoformat(_state(lab, pod)["running"]["startedAt"]).timestamp()


def _state(lab: Lab, pod: str) -> dict[str, Any]:
    found = json.loads(lab.kubectl("get", "pod", pod, "-n", lab.namespace, "-o", "json"))
    statuses = found["status"]["containerStatuses"]
    return next(dict(one["state"]) for one in statuses if one["name"] == "pilot")


def _masters_are_known(lab: Lab, pods: Mapping[str, str]) -> bool:
    """Orders go to masters, which tell of themselves some seconds after their startds."""
    known = lab.access_point("alice", ["condor_status", "-master", "-af", "Name"]).split()
    return {f"lab.{pod}" for pod in pods.values()} <= set(known)


def _outcome(jobs: Jobs) -> str:
    try:
        event = jobs.wait("JobEvictedEvent", "JobTerminatedEvent", timeout=60, ignore=BAD_NEWS)
    except JobTrouble as trouble:
        return str(trouble)
    if event.kind == "JobTerminatedEvent":
        return f"exit code {event.attributes['ReturnValue']}"
    return "evicted with its state" if event.attributes["SentBytes"] else "evicted without"
