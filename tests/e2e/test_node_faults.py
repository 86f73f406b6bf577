"""The node's own daemons stop, start again or stand still, or its disk is full, at each moment of a job's life.

One outage hits jobs that are at all these moments, each under a pilot of its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pytest

from lab import jobs as lab_jobs
from lab import outages, pilot
from lab.api import Lab
from lab.faulty import BLOBS, Fault
from lab.jobs import BAD_NEWS, Jobs
from lab.oci import Pusher
from lab.registries import faulty_registry
from lab.settings import Settings
from tests.e2e.on_signal import CODE, OUTPUT, OnSignal
from tests.e2e.pool import MATCHED_SECONDS, WAITS, Images, Pool, ads, result, until
from tests.runner.tiers import each_day

pytestmark = [pytest.mark.disruptive, pytest.mark.timeout(400)]

Outage = Callable[[Lab], AbstractContextManager[None]]
OUTAGES: Final[dict[str, Outage]] = {
    "kubelet stopped": outages.kubelet_stopped,
    "kubelet slow": outages.kubelet_frozen,
    "containerd stopped": outages.runtime_stopped,
    "containerd killed": lambda lab: outages.runtime_stopped(lab, kill=True),
}
EACH_DAY: Final = ("kubelet stopped",)
LANDING: Final = ("kubelet slow", "containerd killed")
"""A runtime that is killed has done less before its end than one that is stopped."""

LASTS_SECONDS = 3.0
AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""
NODE = Settings.from_environment().runtime_agent
"""First word of the User-Agent in the node's requests to registries."""

COMES, PULLED, STARTS, RUNS, ENDS, REMOVED = MOMENTS = ("comes", "pulled", "starts", "runs", "ends", "removed")
PATIENCE: Final = {REMOVED: {"K8SPILOT_PATIENCE_SECONDS": "20"}}
"""This pilot gives up soon on what may pass: its job's moment needs no patience."""
DEFAULT_PATIENCE_SECONDS: Final = 120
DEPLOYED_AT_A_TIME = 3


@pytest.fixture(scope="module")
def pods(lab: Lab, owner: str) -> Iterator[Mapping[str, str]]:
    """A pilot pod for each moment, that changes to the idle image soon."""
    names = {moment: f"e2e-{owner}-node-{moment}" for moment in MOMENTS}

    def deploy(moment: str) -> None:
        pilot.deploy(lab, names[moment], {"K8SPILOT_IDLE_AFTER_SECONDS": "1", **PATIENCE.get(moment, {})})
        lab_jobs.wait_in_pool(lab, names[moment])

    with ThreadPoolExecutor(DEPLOYED_AT_A_TIME) as threads:
        try:
            [*threads.map(deploy, MOMENTS)]
            yield names
        finally:  # an interruption may come while they are deployed
            [*threads.map(lambda name: pilot.delete(lab, name), names.values())]


@dataclass
class Stories:
    """A job for each moment, with one outage for all of them."""

    pools: Mapping[str, Pool]
    images: Images
    jobs: dict[str, Jobs] = field(default_factory=dict)
    problems: dict[str, Exception] = field(default_factory=dict)
    """By moment: what did not come as it was to."""

    @property
    def lab(self) -> Lab:
        """Lab of the pilots."""
        return self.pools[COMES].lab

    def tries(self, moment: str, step: Callable[[], object]) -> None:
        """Go on with a story, whatever has become of the others."""
        if moment not in self.problems:
            try:
                step()
            except Exception as problem:  # noqa: BLE001 -- the moment's own test raises it
                self.problems[moment] = problem

    def next_jobs(self, moments: tuple[str, ...]) -> None:
        """The slots of these moments are fit for somebody else's job."""
        begun = {moment: self.pools[moment].shell("echo fine", user="bob") for moment in moments}
        for moment, bob in begun.items():
            self.tries(moment, lambda bob=bob: _is_soon_fine(bob))  # type: ignore[misc]

    def outcome(self, moment: str) -> Jobs:
        """The job of a moment; raises what did not come as it was to."""
        if moment in self.problems:
            raise self.problems[moment]
        return self.jobs[moment]


def _is_soon_fine(jobs: Jobs) -> None:
    assert result(jobs, timeout=AGAIN_SECONDS + 30).stdout == b"fine\n"
    submitted, ended = (
        datetime.fromisoformat(jobs.wait(kind).attributes["EventTime"])
        for kind in ("SubmitEvent", "JobTerminatedEvent")
    )
    assert (ended - submitted).total_seconds() < AGAIN_SECONDS


def _starts(of: Jobs) -> int:
    return int(ads(of)[0]["NumShadowStarts"])


@pytest.fixture(
    scope="module",
    params=each_day(EACH_DAY, OUTAGES, LANDING),
)
def stories(lab: Lab, pods: Mapping[str, str], pusher: Pusher, request: pytest.FixtureRequest) -> Iterator[Stories]:
    """Jobs that are at each moment when an outage comes, and what has become of them after it."""
    began = time.monotonic()
    with ExitStack() as cleanup:
        faulty = cleanup.enter_context(faulty_registry(lab))
        faulty.fails(Fault(BLOBS, hang=True, agent=NODE))
        told = Stories({moment: Pool(lab, pod, cleanup) for moment, pod in pods.items()}, Images(pusher, faulty))
        pools = told.pools
        slow = {"executable": "/bin/sh", "arguments": "\"-c '/bin/busybox sleep 1; echo'\""}
        waiting = {moment: OnSignal.submit(pools[moment]) for moment in (RUNS, ENDS, REMOVED)}
        told.jobs.update({moment: one.jobs for moment, one in waiting.items()})
        told.jobs[PULLED] = pools[PULLED].submit({"container_image": told.images.fresh(), **slow})
        result(pools[STARTS].shell("true"))  # an image that the pod has had: HTCondor tells of the execution early
        for one in waiting.values():
            one.wait_until_it_runs()
        until(lambda: faulty.asked(BLOBS, NODE), "the node pulls", MATCHED_SECONDS)
        told.jobs[STARTS] = pools[STARTS].shell(f"{WAITS}echo fine")
        told.jobs[STARTS].wait("ExecuteEvent")
        with OUTAGES[request.param](lab):
            told.jobs[COMES] = pools[COMES].shell(f"{WAITS}echo fine")
            faulty.is_well()
            waiting[ENDS].tell()
            told.jobs[REMOVED].command("condor_rm")
            told.tries(ENDS, lambda: told.jobs[ENDS].ended(timeout=60))
            told.tries(REMOVED, lambda: told.jobs[REMOVED].wait("JobAbortedEvent", ignore=BAD_NEWS, timeout=60))
            time.sleep(LASTS_SECONDS)  # and pilots change to the idle image, or try to
        waiting[RUNS].tell()
        for moment in (COMES, PULLED, STARTS, RUNS):
            told.tries(moment, lambda moment=moment: told.jobs[moment].ended(timeout=AGAIN_SECONDS))  # type: ignore[misc]
        told.next_jobs((PULLED, RUNS, ENDS, REMOVED))
        for moment, pool in pools.items():
            told.tries(moment, lambda pool=pool: _logs_no_fault(pool, began))  # type: ignore[misc]
        yield told


def _logs_no_fault(pool: Pool, began: float) -> None:
    assert pool.faults(int(time.monotonic() - began) + 2) == []


def test_a_job_that_comes_meanwhile_waits(stories: Stories) -> None:
    jobs = stories.outcome(COMES)
    assert result(jobs).stdout == b"fine\n"
    assert _starts(jobs) == 1


def test_a_job_whose_image_is_pulled_meanwhile_runs(stories: Stories) -> None:
    jobs = stories.outcome(PULLED)
    assert result(jobs).stdout == b"\n"
    assert _starts(jobs) == 1


def test_a_job_that_is_about_to_start_meanwhile_runs(stories: Stories) -> None:
    jobs = stories.outcome(STARTS)
    assert result(jobs).stdout == b"fine\n"
    assert _starts(jobs) == 1


def test_a_job_that_runs_meanwhile_runs_on(stories: Stories) -> None:
    jobs = stories.outcome(RUNS)
    assert (result(jobs).code, result(jobs).stdout) == (CODE, OUTPUT)
    assert _starts(jobs) == 1


def test_a_job_that_ends_meanwhile_has_its_result_at_once(stories: Stories) -> None:
    jobs = stories.outcome(ENDS)
    assert (result(jobs).code, result(jobs).stdout) == (CODE, OUTPUT)


def test_a_job_that_is_removed_meanwhile_frees_the_slot(stories: Stories) -> None:
    stories.outcome(REMOVED)


# --- no room for images ---


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.nightly)], ids=["bytes", "inodes"])
def without_room(
    lab: Lab, pods: Mapping[str, str], pusher: Pusher, request: pytest.FixtureRequest
) -> Iterator[Stories]:
    """Two jobs for whose images the node has no room: one pilot gives up before it has, the other one does not."""
    with ExitStack() as cleanup:
        faulty = cleanup.enter_context(faulty_registry(lab))
        told = Stories({moment: Pool(lab, pod, cleanup) for moment, pod in pods.items()}, Images(pusher, faulty))
        with outages.image_disk_full(lab, inodes=request.param):
            for moment in (COMES, REMOVED):
                echo = {"container_image": told.images.fresh(), "executable": "/bin/echo"}
                told.jobs[moment] = told.pools[moment].submit(echo)
            until(lambda: "no space left" in _payload(told.pools[COMES]), "the kubelet complains", MATCHED_SECONDS)
            goes_back = ("JobEvictedEvent", "ShadowExceptionEvent")
            told.tries(
                REMOVED,
                lambda: told.jobs[REMOVED].wait(*goes_back, timeout=MATCHED_SECONDS + 60, ignore=BAD_NEWS),
            )
        told.next_jobs((REMOVED,))
        yield told


def _payload(pool: Pool) -> str:
    statuses = pool.status()["status"]["initContainerStatuses"]
    return str(next(one for one in statuses if one["name"] == "payload")["state"])


def test_a_job_for_whose_image_the_node_has_no_room_runs_when_it_has(without_room: Stories) -> None:
    """At once, or from the queue again where the kubelet's own back-off is longer than the pilot's patience."""
    jobs = without_room.outcome(COMES)
    timeout = DEFAULT_PATIENCE_SECONDS + AGAIN_SECONDS
    assert jobs.ended(timeout=timeout, ignore=BAD_NEWS - {"JobHeldEvent"}).attributes["ReturnValue"] == 0


def test_a_job_for_whose_image_the_node_has_no_room_for_long_goes_back_to_the_queue(without_room: Stories) -> None:
    jobs = without_room.outcome(REMOVED)
    jobs.look()
    assert "JobHeldEvent" not in {event.kind for event in jobs.events}


# --- the API server ---


@pytest.fixture(scope="module")
def without_api_server(lab: Lab, pods: Mapping[str, str], pusher: Pusher) -> Iterator[Stories]:
    """A job that runs and ends, and one that comes, while the API server itself is stopped."""
    with ExitStack() as cleanup:
        faulty = cleanup.enter_context(faulty_registry(lab))
        told = Stories({moment: Pool(lab, pod, cleanup) for moment, pod in pods.items()}, Images(pusher, faulty))
        ends = OnSignal.submit(told.pools[ENDS])
        ends.wait_until_it_runs()
        told.jobs[ENDS] = ends.jobs
        try:
            with outages.api_server_stopped(lab):
                told.jobs[COMES] = told.pools[COMES].shell("echo fine")
                ends.tell()
                told.tries(ENDS, ends.jobs.ended)
                time.sleep(8)  # and the pilots want to change an image
        finally:
            outages.until_pods_start(lab)
        told.next_jobs((ENDS,))
        told.tries(COMES, lambda: told.jobs[COMES].ended(timeout=90, ignore=BAD_NEWS))
        yield told


def test_the_api_server_itself_is_stopped_while_a_job_runs(without_api_server: Stories) -> None:
    jobs = without_api_server.outcome(ENDS)
    assert (result(jobs).code, result(jobs).stdout) == (CODE, OUTPUT)
    assert _starts(jobs) == 1


def test_the_api_server_itself_is_stopped_while_a_job_is_bound(without_api_server: Stories) -> None:
    jobs = without_api_server.outcome(COMES)
    jobs.look()
    assert "JobHeldEvent" not in {event.kind for event in jobs.events}
    assert jobs.files()["out.0"] == b"fine\n"
